/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What each VEX, EVEX and XOP opcode is. Generated from data/isa/classes.toml
 * and the opcodes that iced-x86 knows: do not edit, but run
 *
 *   UPDATE=1 cargo test -p isa --test kernel_table
 */
#ifndef TLT_ISA_TABLE_H
#define TLT_ISA_TABLE_H

#include "decode.h"

enum tlt_encoding {
	TLT_ENC_VEX,
	TLT_ENC_EVEX,
	TLT_ENC_XOP
};

enum tlt_isa_class {
	TLT_CLASS_UNKNOWN, /* no CPU that we know has it */
	TLT_CLASS_LIGHT,
	TLT_CLASS_HEAVY,
	TLT_CLASS_SCALAR,  /* one element, whatever the length says */
	TLT_CLASS_GENERAL, /* needs no component: BMI and the like */
	TLT_CLASS_OPMASK,
	TLT_CLASS_TILE,
};

#define TLT_ISA_MAPS 11

/* clang-format off */
static const u8 tlt_evex_map1_np[256] = {
	[0x10 ... 0x17] = TLT_CLASS_LIGHT, /* vmovups .. vmovhps */
	[0x28 ... 0x29] = TLT_CLASS_LIGHT, /* vmovaps vmovaps */
	[0x2b] = TLT_CLASS_LIGHT, /* vmovntps */
	[0x2e ... 0x2f] = TLT_CLASS_SCALAR, /* vucomiss vcomiss */
	[0x51] = TLT_CLASS_HEAVY, /* vsqrtps */
	[0x54 ... 0x57] = TLT_CLASS_LIGHT, /* vandps .. vxorps */
	[0x58 ... 0x5f] = TLT_CLASS_HEAVY, /* vaddps .. vmaxps */
	[0x78 ... 0x79] = TLT_CLASS_HEAVY, /* vcvttps2udq .. vcvtpd2udq */
	[0xc2] = TLT_CLASS_HEAVY, /* vcmpps */
	[0xc6] = TLT_CLASS_LIGHT, /* vshufps */
};

static const u8 tlt_evex_map1_66[256] = {
	[0x10 ... 0x17] = TLT_CLASS_LIGHT, /* vmovupd .. vmovhpd */
	[0x28 ... 0x29] = TLT_CLASS_LIGHT, /* vmovapd vmovapd */
	[0x2b] = TLT_CLASS_LIGHT, /* vmovntpd */
	[0x2e ... 0x2f] = TLT_CLASS_SCALAR, /* vucomisd vcomisd */
	[0x51] = TLT_CLASS_HEAVY, /* vsqrtpd */
	[0x54 ... 0x57] = TLT_CLASS_LIGHT, /* vandpd .. vxorpd */
	[0x58 ... 0x5f] = TLT_CLASS_HEAVY, /* vaddpd .. vmaxpd */
	[0x60 ... 0x76] = TLT_CLASS_LIGHT, /* vpunpcklbw .. vpcmpeqd */
	[0x78 ... 0x7b] = TLT_CLASS_HEAVY, /* vcvttps2uqq .. vcvtpd2qq */
	[0x7e ... 0x7f] = TLT_CLASS_LIGHT, /* vmovd .. vmovdqa64 */
	[0xc2] = TLT_CLASS_HEAVY, /* vcmppd */
	[0xc4 ... 0xc6] = TLT_CLASS_LIGHT, /* vpinsrw vpextrw vshufpd */
	[0xd1 ... 0xd4] = TLT_CLASS_LIGHT, /* vpsrlw .. vpaddq */
	[0xd5] = TLT_CLASS_HEAVY, /* vpmullw */
	[0xd6] = TLT_CLASS_LIGHT, /* vmovq */
	[0xd8 ... 0xe3] = TLT_CLASS_LIGHT, /* vpsubusb .. vpavgw */
	[0xe4 ... 0xe6] = TLT_CLASS_HEAVY, /* vpmulhuw vpmulhw vcvttpd2dq */
	[0xe7 ... 0xef] = TLT_CLASS_LIGHT, /* vmovntdq .. vpxorq */
	[0xf1 ... 0xf3] = TLT_CLASS_LIGHT, /* vpsllw vpslld vpsllq */
	[0xf4 ... 0xf5] = TLT_CLASS_HEAVY, /* vpmuludq vpmaddwd */
	[0xf6] = TLT_CLASS_LIGHT, /* vpsadbw */
	[0xf8 ... 0xfe] = TLT_CLASS_LIGHT, /* vpsubb .. vpaddd */
};

static const u8 tlt_evex_map1_f3[256] = {
	[0x10 ... 0x11] = TLT_CLASS_SCALAR, /* vmovss vmovss */
	[0x12] = TLT_CLASS_LIGHT, /* vmovsldup */
	[0x16] = TLT_CLASS_LIGHT, /* vmovshdup */
	[0x2a] = TLT_CLASS_SCALAR, /* vcvtsi2ss */
	[0x2c ... 0x2d] = TLT_CLASS_SCALAR, /* vcvttss2si vcvtss2si */
	[0x51] = TLT_CLASS_SCALAR, /* vsqrtss */
	[0x58 ... 0x5a] = TLT_CLASS_SCALAR, /* vaddss vmulss vcvtss2sd */
	[0x5b] = TLT_CLASS_HEAVY, /* vcvttps2dq */
	[0x5c ... 0x5f] = TLT_CLASS_SCALAR, /* vsubss .. vmaxss */
	[0x6f ... 0x70] = TLT_CLASS_LIGHT, /* vmovdqu32 vmovdqu64 vpshufhw */
	[0x78 ... 0x79] = TLT_CLASS_SCALAR, /* vcvttss2usi vcvtss2usi */
	[0x7a] = TLT_CLASS_HEAVY, /* vcvtudq2pd vcvtuqq2pd */
	[0x7b] = TLT_CLASS_SCALAR, /* vcvtusi2ss */
	[0x7e ... 0x7f] = TLT_CLASS_LIGHT, /* vmovq vmovdqu32 vmovdqu64 */
	[0xc2] = TLT_CLASS_SCALAR, /* vcmpss */
	[0xe6] = TLT_CLASS_HEAVY, /* vcvtdq2pd vcvtqq2pd */
};

static const u8 tlt_evex_map1_f2[256] = {
	[0x10 ... 0x11] = TLT_CLASS_SCALAR, /* vmovsd vmovsd */
	[0x12] = TLT_CLASS_LIGHT, /* vmovddup */
	[0x2a] = TLT_CLASS_SCALAR, /* vcvtsi2sd */
	[0x2c ... 0x2d] = TLT_CLASS_SCALAR, /* vcvttsd2si vcvtsd2si */
	[0x51] = TLT_CLASS_SCALAR, /* vsqrtsd */
	[0x58 ... 0x5a] = TLT_CLASS_SCALAR, /* vaddsd vmulsd vcvtsd2ss */
	[0x5c ... 0x5f] = TLT_CLASS_SCALAR, /* vsubsd .. vmaxsd */
	[0x6f ... 0x70] = TLT_CLASS_LIGHT, /* vmovdqu8 vmovdqu16 vpshuflw */
	[0x78 ... 0x79] = TLT_CLASS_SCALAR, /* vcvttsd2usi vcvtsd2usi */
	[0x7a] = TLT_CLASS_HEAVY, /* vcvtudq2ps vcvtuqq2ps */
	[0x7b] = TLT_CLASS_SCALAR, /* vcvtusi2sd */
	[0x7f] = TLT_CLASS_LIGHT, /* vmovdqu8 vmovdqu16 */
	[0xc2] = TLT_CLASS_SCALAR, /* vcmpsd */
	[0xe6] = TLT_CLASS_HEAVY, /* vcvtpd2dq */
};

static const u8 tlt_evex_map2_66[256] = {
	[0x00] = TLT_CLASS_LIGHT, /* vpshufb */
	[0x04] = TLT_CLASS_HEAVY, /* vpmaddubsw */
	[0x0b] = TLT_CLASS_HEAVY, /* vpmulhrsw */
	[0x0c ... 0x0d] = TLT_CLASS_LIGHT, /* vpermilps vpermilpd */
	[0x10 ... 0x12] = TLT_CLASS_LIGHT, /* vpsrlvw vpsravw vpsllvw */
	[0x13] = TLT_CLASS_HEAVY, /* vcvtph2ps */
	[0x14 ... 0x16] = TLT_CLASS_LIGHT, /* vprorvd .. vpermpd */
	[0x18 ... 0x27] = TLT_CLASS_LIGHT, /* vbroadcastss .. vptestmq */
	[0x28] = TLT_CLASS_HEAVY, /* vpmuldq */
	[0x29 ... 0x2b] = TLT_CLASS_LIGHT, /* vpcmpeqq vmovntdqa vpackusdw */
	[0x2c] = TLT_CLASS_HEAVY, /* vscalefps vscalefpd */
	[0x2d] = TLT_CLASS_SCALAR, /* vscalefss vscalefsd */
	[0x30 ... 0x3f] = TLT_CLASS_LIGHT, /* vpmovzxbw .. vpmaxuq */
	[0x40] = TLT_CLASS_HEAVY, /* vpmulld vpmullq */
	[0x42] = TLT_CLASS_HEAVY, /* vgetexpps vgetexppd */
	[0x43] = TLT_CLASS_SCALAR, /* vgetexpss vgetexpsd */
	[0x44 ... 0x47] = TLT_CLASS_LIGHT, /* vplzcntd .. vpsllvq */
	[0x4c] = TLT_CLASS_HEAVY, /* vrcp14ps vrcp14pd */
	[0x4d] = TLT_CLASS_SCALAR, /* vrcp14ss vrcp14sd */
	[0x4e] = TLT_CLASS_HEAVY, /* vrsqrt14ps vrsqrt14pd */
	[0x4f] = TLT_CLASS_SCALAR, /* vrsqrt14ss vrsqrt14sd */
	[0x50 ... 0x53] = TLT_CLASS_HEAVY, /* vpdpbusd .. vpdpwssds */
	[0x54 ... 0x55] = TLT_CLASS_LIGHT, /* vpopcntb .. vpopcntq */
	[0x58 ... 0x5b] = TLT_CLASS_LIGHT, /* vpbroadcastd .. vbroadcasti64x4 */
	[0x62 ... 0x66] = TLT_CLASS_LIGHT, /* vpexpandb .. vpblendmw */
	[0x70 ... 0x73] = TLT_CLASS_LIGHT, /* vpshldvw .. vpshrdvq */
	[0x75 ... 0x7f] = TLT_CLASS_LIGHT, /* vpermi2b .. vpermt2pd */
	[0x83] = TLT_CLASS_LIGHT, /* vpmultishiftqb */
	[0x88 ... 0x8b] = TLT_CLASS_LIGHT, /* vexpandps .. vpcompressq */
	[0x8d] = TLT_CLASS_LIGHT, /* vpermb vpermw */
	[0x8f ... 0x93] = TLT_CLASS_LIGHT, /* vpshufbitqmb .. vgatherqpd */
	[0x96 ... 0x98] = TLT_CLASS_HEAVY, /* vfmaddsub132ps .. vfmadd132pd */
	[0x99] = TLT_CLASS_SCALAR, /* vfmadd132ss vfmadd132sd */
	[0x9a] = TLT_CLASS_HEAVY, /* vfmsub132ps vfmsub132pd */
	[0x9b] = TLT_CLASS_SCALAR, /* vfmsub132ss vfmsub132sd */
	[0x9c] = TLT_CLASS_HEAVY, /* vfnmadd132ps vfnmadd132pd */
	[0x9d] = TLT_CLASS_SCALAR, /* vfnmadd132ss vfnmadd132sd */
	[0x9e] = TLT_CLASS_HEAVY, /* vfnmsub132ps vfnmsub132pd */
	[0x9f] = TLT_CLASS_SCALAR, /* vfnmsub132ss vfnmsub132sd */
	[0xa0 ... 0xa3] = TLT_CLASS_HEAVY, /* vpscatterdd .. vscatterqpd */
	[0xa6 ... 0xa8] = TLT_CLASS_HEAVY, /* vfmaddsub213ps .. vfmadd213pd */
	[0xa9] = TLT_CLASS_SCALAR, /* vfmadd213ss vfmadd213sd */
	[0xaa] = TLT_CLASS_HEAVY, /* vfmsub213ps vfmsub213pd */
	[0xab] = TLT_CLASS_SCALAR, /* vfmsub213ss vfmsub213sd */
	[0xac] = TLT_CLASS_HEAVY, /* vfnmadd213ps vfnmadd213pd */
	[0xad] = TLT_CLASS_SCALAR, /* vfnmadd213ss vfnmadd213sd */
	[0xae] = TLT_CLASS_HEAVY, /* vfnmsub213ps vfnmsub213pd */
	[0xaf] = TLT_CLASS_SCALAR, /* vfnmsub213ss vfnmsub213sd */
	[0xb4 ... 0xb8] = TLT_CLASS_HEAVY, /* vpmadd52luq .. vfmadd231pd */
	[0xb9] = TLT_CLASS_SCALAR, /* vfmadd231ss vfmadd231sd */
	[0xba] = TLT_CLASS_HEAVY, /* vfmsub231ps vfmsub231pd */
	[0xbb] = TLT_CLASS_SCALAR, /* vfmsub231ss vfmsub231sd */
	[0xbc] = TLT_CLASS_HEAVY, /* vfnmadd231ps vfnmadd231pd */
	[0xbd] = TLT_CLASS_SCALAR, /* vfnmadd231ss vfnmadd231sd */
	[0xbe] = TLT_CLASS_HEAVY, /* vfnmsub231ps vfnmsub231pd */
	[0xbf] = TLT_CLASS_SCALAR, /* vfnmsub231ss vfnmsub231sd */
	[0xc4] = TLT_CLASS_LIGHT, /* vpconflictd vpconflictq */
	[0xc6 ... 0xc7] = TLT_CLASS_LIGHT, /* vgatherpf0dps .. vscatterpf1qpd */
	[0xc8] = TLT_CLASS_HEAVY, /* vexp2ps vexp2pd */
	[0xca] = TLT_CLASS_HEAVY, /* vrcp28ps vrcp28pd */
	[0xcb] = TLT_CLASS_SCALAR, /* vrcp28ss vrcp28sd */
	[0xcc] = TLT_CLASS_HEAVY, /* vrsqrt28ps vrsqrt28pd */
	[0xcd] = TLT_CLASS_SCALAR, /* vrsqrt28ss vrsqrt28sd */
	[0xcf] = TLT_CLASS_LIGHT, /* vgf2p8mulb */
	[0xdc ... 0xdf] = TLT_CLASS_LIGHT, /* vaesenc .. vaesdeclast */
};

static const u8 tlt_evex_map2_f3[256] = {
	[0x10 ... 0x15] = TLT_CLASS_LIGHT, /* vpmovuswb .. vpmovusqd */
	[0x20 ... 0x2a] = TLT_CLASS_LIGHT, /* vpmovswb .. vpbroadcastmb2q */
	[0x30 ... 0x35] = TLT_CLASS_LIGHT, /* vpmovwb .. vpmovqd */
	[0x38 ... 0x3a] = TLT_CLASS_LIGHT, /* vpmovm2d .. vpbroadcastmw2d */
	[0x52] = TLT_CLASS_HEAVY, /* vdpbf16ps */
	[0x72] = TLT_CLASS_HEAVY, /* vcvtneps2bf16 */
};

static const u8 tlt_evex_map2_f2[256] = {
	[0x52 ... 0x53] = TLT_CLASS_HEAVY, /* vp4dpwssd vp4dpwssds */
	[0x68] = TLT_CLASS_LIGHT, /* vp2intersectd vp2intersectq */
	[0x72] = TLT_CLASS_HEAVY, /* vcvtne2ps2bf16 */
	[0x9a] = TLT_CLASS_HEAVY, /* v4fmaddps */
	[0x9b] = TLT_CLASS_SCALAR, /* v4fmaddss */
	[0xaa] = TLT_CLASS_HEAVY, /* v4fnmaddps */
	[0xab] = TLT_CLASS_SCALAR, /* v4fnmaddss */
};

static const u8 tlt_evex_map3_np[256] = {
	[0x08] = TLT_CLASS_HEAVY, /* vrndscaleph */
	[0x0a] = TLT_CLASS_SCALAR, /* vrndscalesh */
	[0x26] = TLT_CLASS_HEAVY, /* vgetmantph */
	[0x27] = TLT_CLASS_SCALAR, /* vgetmantsh */
	[0x56] = TLT_CLASS_HEAVY, /* vreduceph */
	[0x57] = TLT_CLASS_SCALAR, /* vreducesh */
	[0x66] = TLT_CLASS_LIGHT, /* vfpclassph */
	[0x67] = TLT_CLASS_SCALAR, /* vfpclasssh */
	[0xc2] = TLT_CLASS_HEAVY, /* vcmpph */
};

static const u8 tlt_evex_map3_66[256] = {
	[0x00 ... 0x01] = TLT_CLASS_LIGHT, /* vpermq vpermpd */
	[0x03 ... 0x05] = TLT_CLASS_LIGHT, /* valignd .. vpermilpd */
	[0x08 ... 0x09] = TLT_CLASS_HEAVY, /* vrndscaleps vrndscalepd */
	[0x0a ... 0x0b] = TLT_CLASS_SCALAR, /* vrndscaless vrndscalesd */
	[0x0f] = TLT_CLASS_LIGHT, /* vpalignr */
	[0x14 ... 0x1b] = TLT_CLASS_LIGHT, /* vpextrb .. vextractf64x4 */
	[0x1d] = TLT_CLASS_HEAVY, /* vcvtps2ph */
	[0x1e ... 0x23] = TLT_CLASS_LIGHT, /* vpcmpud .. vshuff64x2 */
	[0x25] = TLT_CLASS_LIGHT, /* vpternlogd vpternlogq */
	[0x26] = TLT_CLASS_HEAVY, /* vgetmantps vgetmantpd */
	[0x27] = TLT_CLASS_SCALAR, /* vgetmantss vgetmantsd */
	[0x38 ... 0x3b] = TLT_CLASS_LIGHT, /* vinserti32x4 .. vextracti64x4 */
	[0x3e ... 0x3f] = TLT_CLASS_LIGHT, /* vpcmpub .. vpcmpw */
	[0x42 ... 0x44] = TLT_CLASS_LIGHT, /* vdbpsadbw .. vpclmulqdq */
	[0x50] = TLT_CLASS_HEAVY, /* vrangeps vrangepd */
	[0x51] = TLT_CLASS_SCALAR, /* vrangess vrangesd */
	[0x54] = TLT_CLASS_HEAVY, /* vfixupimmps vfixupimmpd */
	[0x55] = TLT_CLASS_SCALAR, /* vfixupimmss vfixupimmsd */
	[0x56] = TLT_CLASS_HEAVY, /* vreduceps vreducepd */
	[0x57] = TLT_CLASS_SCALAR, /* vreducess vreducesd */
	[0x66] = TLT_CLASS_LIGHT, /* vfpclassps vfpclasspd */
	[0x67] = TLT_CLASS_SCALAR, /* vfpclassss vfpclasssd */
	[0x70 ... 0x73] = TLT_CLASS_LIGHT, /* vpshldw .. vpshrdq */
	[0xce ... 0xcf] = TLT_CLASS_LIGHT, /* vgf2p8affineqb vgf2p8affineinvqb */
};

static const u8 tlt_evex_map3_f3[256] = {
	[0xc2] = TLT_CLASS_SCALAR, /* vcmpsh */
};

static const u8 tlt_evex_map5_np[256] = {
	[0x1d] = TLT_CLASS_SCALAR, /* vcvtss2sh */
	[0x2e ... 0x2f] = TLT_CLASS_SCALAR, /* vucomish vcomish */
	[0x51] = TLT_CLASS_HEAVY, /* vsqrtph */
	[0x58 ... 0x5f] = TLT_CLASS_HEAVY, /* vaddph .. vmaxph */
	[0x78 ... 0x79] = TLT_CLASS_HEAVY, /* vcvttph2udq vcvtph2udq */
	[0x7c ... 0x7d] = TLT_CLASS_HEAVY, /* vcvttph2uw vcvtph2uw */
};

static const u8 tlt_evex_map5_66[256] = {
	[0x1d] = TLT_CLASS_HEAVY, /* vcvtps2phx */
	[0x5a ... 0x5b] = TLT_CLASS_HEAVY, /* vcvtpd2ph vcvtph2dq */
	[0x6e] = TLT_CLASS_LIGHT, /* vmovw */
	[0x78 ... 0x7d] = TLT_CLASS_HEAVY, /* vcvttph2uqq .. vcvtph2w */
	[0x7e] = TLT_CLASS_LIGHT, /* vmovw */
};

static const u8 tlt_evex_map5_f3[256] = {
	[0x10 ... 0x11] = TLT_CLASS_SCALAR, /* vmovsh vmovsh */
	[0x2a] = TLT_CLASS_SCALAR, /* vcvtsi2sh */
	[0x2c ... 0x2d] = TLT_CLASS_SCALAR, /* vcvttsh2si vcvtsh2si */
	[0x51] = TLT_CLASS_SCALAR, /* vsqrtsh */
	[0x58 ... 0x5a] = TLT_CLASS_SCALAR, /* vaddsh vmulsh vcvtsh2sd */
	[0x5b] = TLT_CLASS_HEAVY, /* vcvttph2dq */
	[0x5c ... 0x5f] = TLT_CLASS_SCALAR, /* vsubsh .. vmaxsh */
	[0x78 ... 0x79] = TLT_CLASS_SCALAR, /* vcvttsh2usi vcvtsh2usi */
	[0x7b] = TLT_CLASS_SCALAR, /* vcvtusi2sh */
	[0x7d] = TLT_CLASS_HEAVY, /* vcvtw2ph */
};

static const u8 tlt_evex_map5_f2[256] = {
	[0x5a] = TLT_CLASS_SCALAR, /* vcvtsd2sh */
	[0x7a] = TLT_CLASS_HEAVY, /* vcvtudq2ph vcvtuqq2ph */
	[0x7d] = TLT_CLASS_HEAVY, /* vcvtuw2ph */
};

static const u8 tlt_evex_map6_np[256] = {
	[0x13] = TLT_CLASS_SCALAR, /* vcvtsh2ss */
};

static const u8 tlt_evex_map6_66[256] = {
	[0x13] = TLT_CLASS_HEAVY, /* vcvtph2psx */
	[0x2c] = TLT_CLASS_HEAVY, /* vscalefph */
	[0x2d] = TLT_CLASS_SCALAR, /* vscalefsh */
	[0x42] = TLT_CLASS_HEAVY, /* vgetexpph */
	[0x43] = TLT_CLASS_SCALAR, /* vgetexpsh */
	[0x4c] = TLT_CLASS_HEAVY, /* vrcpph */
	[0x4d] = TLT_CLASS_SCALAR, /* vrcpsh */
	[0x4e] = TLT_CLASS_HEAVY, /* vrsqrtph */
	[0x4f] = TLT_CLASS_SCALAR, /* vrsqrtsh */
	[0x96 ... 0x98] = TLT_CLASS_HEAVY, /* vfmaddsub132ph vfmsubadd132ph vfmadd132ph */
	[0x99] = TLT_CLASS_SCALAR, /* vfmadd132sh */
	[0x9a] = TLT_CLASS_HEAVY, /* vfmsub132ph */
	[0x9b] = TLT_CLASS_SCALAR, /* vfmsub132sh */
	[0x9c] = TLT_CLASS_HEAVY, /* vfnmadd132ph */
	[0x9d] = TLT_CLASS_SCALAR, /* vfnmadd132sh */
	[0x9e] = TLT_CLASS_HEAVY, /* vfnmsub132ph */
	[0x9f] = TLT_CLASS_SCALAR, /* vfnmsub132sh */
	[0xa6 ... 0xa8] = TLT_CLASS_HEAVY, /* vfmaddsub213ph vfmsubadd213ph vfmadd213ph */
	[0xa9] = TLT_CLASS_SCALAR, /* vfmadd213sh */
	[0xaa] = TLT_CLASS_HEAVY, /* vfmsub213ph */
	[0xab] = TLT_CLASS_SCALAR, /* vfmsub213sh */
	[0xac] = TLT_CLASS_HEAVY, /* vfnmadd213ph */
	[0xad] = TLT_CLASS_SCALAR, /* vfnmadd213sh */
	[0xae] = TLT_CLASS_HEAVY, /* vfnmsub213ph */
	[0xaf] = TLT_CLASS_SCALAR, /* vfnmsub213sh */
	[0xb6 ... 0xb8] = TLT_CLASS_HEAVY, /* vfmaddsub231ph vfmsubadd231ph vfmadd231ph */
	[0xb9] = TLT_CLASS_SCALAR, /* vfmadd231sh */
	[0xba] = TLT_CLASS_HEAVY, /* vfmsub231ph */
	[0xbb] = TLT_CLASS_SCALAR, /* vfmsub231sh */
	[0xbc] = TLT_CLASS_HEAVY, /* vfnmadd231ph */
	[0xbd] = TLT_CLASS_SCALAR, /* vfnmadd231sh */
	[0xbe] = TLT_CLASS_HEAVY, /* vfnmsub231ph */
	[0xbf] = TLT_CLASS_SCALAR, /* vfnmsub231sh */
};

static const u8 tlt_evex_map6_f3[256] = {
	[0x56] = TLT_CLASS_HEAVY, /* vfmaddcph */
	[0x57] = TLT_CLASS_SCALAR, /* vfmaddcsh */
	[0xd6] = TLT_CLASS_HEAVY, /* vfmulcph */
	[0xd7] = TLT_CLASS_SCALAR, /* vfmulcsh */
};

static const u8 tlt_evex_map6_f2[256] = {
	[0x56] = TLT_CLASS_HEAVY, /* vfcmaddcph */
	[0x57] = TLT_CLASS_SCALAR, /* vfcmaddcsh */
	[0xd6] = TLT_CLASS_HEAVY, /* vfcmulcph */
	[0xd7] = TLT_CLASS_SCALAR, /* vfcmulcsh */
};

static const u8 tlt_vex_map1_np[256] = {
	[0x10 ... 0x17] = TLT_CLASS_LIGHT, /* vmovups .. vmovhps */
	[0x28 ... 0x29] = TLT_CLASS_LIGHT, /* vmovaps vmovaps */
	[0x2b] = TLT_CLASS_LIGHT, /* vmovntps */
	[0x2e ... 0x2f] = TLT_CLASS_SCALAR, /* vucomiss vcomiss */
	[0x41 ... 0x42] = TLT_CLASS_OPMASK, /* kandw .. kandnq */
	[0x44 ... 0x47] = TLT_CLASS_OPMASK, /* knotw .. kxorq */
	[0x4a ... 0x4b] = TLT_CLASS_OPMASK, /* kaddw .. kunpckdq */
	[0x50] = TLT_CLASS_LIGHT, /* vmovmskps */
	[0x51 ... 0x53] = TLT_CLASS_HEAVY, /* vsqrtps vrsqrtps vrcpps */
	[0x54 ... 0x57] = TLT_CLASS_LIGHT, /* vandps .. vxorps */
	[0x58 ... 0x5f] = TLT_CLASS_HEAVY, /* vaddps .. vmaxps */
	[0x77] = TLT_CLASS_LIGHT, /* vzeroupper vzeroall */
	[0x90 ... 0x93] = TLT_CLASS_OPMASK, /* kmovw .. kmovw */
	[0x98 ... 0x99] = TLT_CLASS_OPMASK, /* kortestw .. ktestq */
	[0xae] = TLT_CLASS_LIGHT, /* vldmxcsr vstmxcsr */
	[0xc2] = TLT_CLASS_HEAVY, /* vcmpps */
	[0xc6] = TLT_CLASS_LIGHT, /* vshufps */
};

static const u8 tlt_vex_map1_66[256] = {
	[0x10 ... 0x17] = TLT_CLASS_LIGHT, /* vmovupd .. vmovhpd */
	[0x28 ... 0x29] = TLT_CLASS_LIGHT, /* vmovapd vmovapd */
	[0x2b] = TLT_CLASS_LIGHT, /* vmovntpd */
	[0x2e ... 0x2f] = TLT_CLASS_SCALAR, /* vucomisd vcomisd */
	[0x41 ... 0x42] = TLT_CLASS_OPMASK, /* kandb .. kandnd */
	[0x44 ... 0x47] = TLT_CLASS_OPMASK, /* knotb .. kxord */
	[0x4a ... 0x4b] = TLT_CLASS_OPMASK, /* kaddb kaddd kunpckbw */
	[0x50] = TLT_CLASS_LIGHT, /* vmovmskpd */
	[0x51] = TLT_CLASS_HEAVY, /* vsqrtpd */
	[0x54 ... 0x57] = TLT_CLASS_LIGHT, /* vandpd .. vxorpd */
	[0x58 ... 0x5f] = TLT_CLASS_HEAVY, /* vaddpd .. vmaxpd */
	[0x60 ... 0x76] = TLT_CLASS_LIGHT, /* vpunpcklbw .. vpcmpeqd */
	[0x7c ... 0x7d] = TLT_CLASS_HEAVY, /* vhaddpd vhsubpd */
	[0x7e ... 0x7f] = TLT_CLASS_LIGHT, /* vmovd vmovq vmovdqa */
	[0x90 ... 0x93] = TLT_CLASS_OPMASK, /* kmovb .. kmovb */
	[0x98 ... 0x99] = TLT_CLASS_OPMASK, /* kortestb .. ktestd */
	[0xc2] = TLT_CLASS_HEAVY, /* vcmppd */
	[0xc4 ... 0xc6] = TLT_CLASS_LIGHT, /* vpinsrw vpextrw vshufpd */
	[0xd0] = TLT_CLASS_HEAVY, /* vaddsubpd */
	[0xd1 ... 0xd4] = TLT_CLASS_LIGHT, /* vpsrlw .. vpaddq */
	[0xd5] = TLT_CLASS_HEAVY, /* vpmullw */
	[0xd6 ... 0xe3] = TLT_CLASS_LIGHT, /* vmovq .. vpavgw */
	[0xe4 ... 0xe6] = TLT_CLASS_HEAVY, /* vpmulhuw vpmulhw vcvttpd2dq */
	[0xe7 ... 0xef] = TLT_CLASS_LIGHT, /* vmovntdq .. vpxor */
	[0xf1 ... 0xf3] = TLT_CLASS_LIGHT, /* vpsllw vpslld vpsllq */
	[0xf4 ... 0xf5] = TLT_CLASS_HEAVY, /* vpmuludq vpmaddwd */
	[0xf6 ... 0xfe] = TLT_CLASS_LIGHT, /* vpsadbw .. vpaddd */
};

static const u8 tlt_vex_map1_f3[256] = {
	[0x10 ... 0x11] = TLT_CLASS_SCALAR, /* vmovss vmovss */
	[0x12] = TLT_CLASS_LIGHT, /* vmovsldup */
	[0x16] = TLT_CLASS_LIGHT, /* vmovshdup */
	[0x2a] = TLT_CLASS_SCALAR, /* vcvtsi2ss */
	[0x2c ... 0x2d] = TLT_CLASS_SCALAR, /* vcvttss2si vcvtss2si */
	[0x51 ... 0x53] = TLT_CLASS_SCALAR, /* vsqrtss vrsqrtss vrcpss */
	[0x58 ... 0x5a] = TLT_CLASS_SCALAR, /* vaddss vmulss vcvtss2sd */
	[0x5b] = TLT_CLASS_HEAVY, /* vcvttps2dq */
	[0x5c ... 0x5f] = TLT_CLASS_SCALAR, /* vsubss .. vmaxss */
	[0x6f ... 0x70] = TLT_CLASS_LIGHT, /* vmovdqu vpshufhw */
	[0x7e ... 0x7f] = TLT_CLASS_LIGHT, /* vmovq vmovdqu */
	[0xc2] = TLT_CLASS_SCALAR, /* vcmpss */
	[0xe6] = TLT_CLASS_HEAVY, /* vcvtdq2pd */
};

static const u8 tlt_vex_map1_f2[256] = {
	[0x10 ... 0x11] = TLT_CLASS_SCALAR, /* vmovsd vmovsd */
	[0x12] = TLT_CLASS_LIGHT, /* vmovddup */
	[0x2a] = TLT_CLASS_SCALAR, /* vcvtsi2sd */
	[0x2c ... 0x2d] = TLT_CLASS_SCALAR, /* vcvttsd2si vcvtsd2si */
	[0x51] = TLT_CLASS_SCALAR, /* vsqrtsd */
	[0x58 ... 0x5a] = TLT_CLASS_SCALAR, /* vaddsd vmulsd vcvtsd2ss */
	[0x5c ... 0x5f] = TLT_CLASS_SCALAR, /* vsubsd .. vmaxsd */
	[0x70] = TLT_CLASS_LIGHT, /* vpshuflw */
	[0x7c ... 0x7d] = TLT_CLASS_HEAVY, /* vhaddps vhsubps */
	[0x92 ... 0x93] = TLT_CLASS_OPMASK, /* kmovd .. kmovq */
	[0xc2] = TLT_CLASS_SCALAR, /* vcmpsd */
	[0xd0] = TLT_CLASS_HEAVY, /* vaddsubps */
	[0xe6] = TLT_CLASS_HEAVY, /* vcvtpd2dq */
	[0xf0] = TLT_CLASS_LIGHT, /* vlddqu */
};

static const u8 tlt_vex_map2_np[256] = {
	[0x49] = TLT_CLASS_TILE, /* ldtilecfg tilerelease */
	[0x50 ... 0x51] = TLT_CLASS_HEAVY, /* vpdpbuud vpdpbuuds */
	[0x5e] = TLT_CLASS_TILE, /* tdpbuud */
	[0x6c] = TLT_CLASS_TILE, /* tcmmrlfp16ps */
	[0xb0] = TLT_CLASS_HEAVY, /* vcvtneoph2ps */
	[0xd2 ... 0xd3] = TLT_CLASS_HEAVY, /* vpdpwuud vpdpwuuds */
	[0xda] = TLT_CLASS_LIGHT, /* vsm3msg1 */
	[0xf2 ... 0xf3] = TLT_CLASS_GENERAL, /* andn .. blsi */
	[0xf5] = TLT_CLASS_GENERAL, /* bzhi */
	[0xf7] = TLT_CLASS_GENERAL, /* bextr */
};

static const u8 tlt_vex_map2_66[256] = {
	[0x00 ... 0x03] = TLT_CLASS_LIGHT, /* vpshufb .. vphaddsw */
	[0x04] = TLT_CLASS_HEAVY, /* vpmaddubsw */
	[0x05 ... 0x0a] = TLT_CLASS_LIGHT, /* vphsubw .. vpsignd */
	[0x0b] = TLT_CLASS_HEAVY, /* vpmulhrsw */
	[0x0c ... 0x0f] = TLT_CLASS_LIGHT, /* vpermilps .. vtestpd */
	[0x13] = TLT_CLASS_HEAVY, /* vcvtph2ps */
	[0x16 ... 0x1a] = TLT_CLASS_LIGHT, /* vpermps .. vbroadcastf128 */
	[0x1c ... 0x1e] = TLT_CLASS_LIGHT, /* vpabsb vpabsw vpabsd */
	[0x20 ... 0x25] = TLT_CLASS_LIGHT, /* vpmovsxbw .. vpmovsxdq */
	[0x28] = TLT_CLASS_HEAVY, /* vpmuldq */
	[0x29 ... 0x3f] = TLT_CLASS_LIGHT, /* vpcmpeqq .. vpmaxud */
	[0x40] = TLT_CLASS_HEAVY, /* vpmulld */
	[0x41] = TLT_CLASS_LIGHT, /* vphminposuw */
	[0x45 ... 0x47] = TLT_CLASS_LIGHT, /* vpsrlvd .. vpsllvq */
	[0x49] = TLT_CLASS_TILE, /* sttilecfg */
	[0x4b] = TLT_CLASS_TILE, /* tileloaddt1 */
	[0x50 ... 0x53] = TLT_CLASS_HEAVY, /* vpdpbusd .. vpdpwssds */
	[0x58 ... 0x5a] = TLT_CLASS_LIGHT, /* vpbroadcastd vpbroadcastq vbroadcasti128 */
	[0x5e] = TLT_CLASS_TILE, /* tdpbusd */
	[0x6c] = TLT_CLASS_TILE, /* tcmmimfp16ps */
	[0x78 ... 0x79] = TLT_CLASS_LIGHT, /* vpbroadcastb vpbroadcastw */
	[0x8c] = TLT_CLASS_LIGHT, /* vpmaskmovd vpmaskmovq */
	[0x8e] = TLT_CLASS_LIGHT, /* vpmaskmovd vpmaskmovq */
	[0x90 ... 0x93] = TLT_CLASS_LIGHT, /* vpgatherdd .. vgatherqpd */
	[0x96 ... 0x98] = TLT_CLASS_HEAVY, /* vfmaddsub132ps .. vfmadd132pd */
	[0x99] = TLT_CLASS_SCALAR, /* vfmadd132ss vfmadd132sd */
	[0x9a] = TLT_CLASS_HEAVY, /* vfmsub132ps vfmsub132pd */
	[0x9b] = TLT_CLASS_SCALAR, /* vfmsub132ss vfmsub132sd */
	[0x9c] = TLT_CLASS_HEAVY, /* vfnmadd132ps vfnmadd132pd */
	[0x9d] = TLT_CLASS_SCALAR, /* vfnmadd132ss vfnmadd132sd */
	[0x9e] = TLT_CLASS_HEAVY, /* vfnmsub132ps vfnmsub132pd */
	[0x9f] = TLT_CLASS_SCALAR, /* vfnmsub132ss vfnmsub132sd */
	[0xa6 ... 0xa8] = TLT_CLASS_HEAVY, /* vfmaddsub213ps .. vfmadd213pd */
	[0xa9] = TLT_CLASS_SCALAR, /* vfmadd213ss vfmadd213sd */
	[0xaa] = TLT_CLASS_HEAVY, /* vfmsub213ps vfmsub213pd */
	[0xab] = TLT_CLASS_SCALAR, /* vfmsub213ss vfmsub213sd */
	[0xac] = TLT_CLASS_HEAVY, /* vfnmadd213ps vfnmadd213pd */
	[0xad] = TLT_CLASS_SCALAR, /* vfnmadd213ss vfnmadd213sd */
	[0xae] = TLT_CLASS_HEAVY, /* vfnmsub213ps vfnmsub213pd */
	[0xaf] = TLT_CLASS_SCALAR, /* vfnmsub213ss vfnmsub213sd */
	[0xb0 ... 0xb1] = TLT_CLASS_HEAVY, /* vcvtneeph2ps vbcstnesh2ps */
	[0xb4 ... 0xb8] = TLT_CLASS_HEAVY, /* vpmadd52luq .. vfmadd231pd */
	[0xb9] = TLT_CLASS_SCALAR, /* vfmadd231ss vfmadd231sd */
	[0xba] = TLT_CLASS_HEAVY, /* vfmsub231ps vfmsub231pd */
	[0xbb] = TLT_CLASS_SCALAR, /* vfmsub231ss vfmsub231sd */
	[0xbc] = TLT_CLASS_HEAVY, /* vfnmadd231ps vfnmadd231pd */
	[0xbd] = TLT_CLASS_SCALAR, /* vfnmadd231ss vfnmadd231sd */
	[0xbe] = TLT_CLASS_HEAVY, /* vfnmsub231ps vfnmsub231pd */
	[0xbf] = TLT_CLASS_SCALAR, /* vfnmsub231ss vfnmsub231sd */
	[0xcf] = TLT_CLASS_LIGHT, /* vgf2p8mulb */
	[0xd2 ... 0xd3] = TLT_CLASS_HEAVY, /* vpdpwusd vpdpwusds */
	[0xda ... 0xdf] = TLT_CLASS_LIGHT, /* vsm3msg2 .. vaesdeclast */
	[0xe0 ... 0xef] = TLT_CLASS_GENERAL, /* cmpoxadd .. cmpnlexadd */
	[0xf7] = TLT_CLASS_GENERAL, /* shlx */
};

static const u8 tlt_vex_map2_f3[256] = {
	[0x4b] = TLT_CLASS_TILE, /* tilestored */
	[0x50 ... 0x51] = TLT_CLASS_HEAVY, /* vpdpbsud vpdpbsuds */
	[0x5c] = TLT_CLASS_TILE, /* tdpbf16ps */
	[0x5e] = TLT_CLASS_TILE, /* tdpbsud */
	[0x72] = TLT_CLASS_HEAVY, /* vcvtneps2bf16 */
	[0xb0 ... 0xb1] = TLT_CLASS_HEAVY, /* vcvtneebf162ps vbcstnebf162ps */
	[0xd2 ... 0xd3] = TLT_CLASS_HEAVY, /* vpdpwsud vpdpwsuds */
	[0xda] = TLT_CLASS_LIGHT, /* vsm4key4 */
	[0xf5] = TLT_CLASS_GENERAL, /* pext */
	[0xf7] = TLT_CLASS_GENERAL, /* sarx */
};

static const u8 tlt_vex_map2_f2[256] = {
	[0x49] = TLT_CLASS_TILE, /* tilezero */
	[0x4b] = TLT_CLASS_TILE, /* tileloadd */
	[0x50 ... 0x51] = TLT_CLASS_HEAVY, /* vpdpbssd vpdpbssds */
	[0x5c] = TLT_CLASS_TILE, /* tdpfp16ps */
	[0x5e] = TLT_CLASS_TILE, /* tdpbssd */
	[0xb0] = TLT_CLASS_HEAVY, /* vcvtneobf162ps */
	[0xcb ... 0xcd] = TLT_CLASS_LIGHT, /* vsha512rnds2 vsha512msg1 vsha512msg2 */
	[0xda] = TLT_CLASS_LIGHT, /* vsm4rnds4 */
	[0xf5 ... 0xf7] = TLT_CLASS_GENERAL, /* pdep mulx shrx */
};

static const u8 tlt_vex_map3_66[256] = {
	[0x00 ... 0x02] = TLT_CLASS_LIGHT, /* vpermq vpermpd vpblendd */
	[0x04 ... 0x06] = TLT_CLASS_LIGHT, /* vpermilps vpermilpd vperm2f128 */
	[0x08 ... 0x09] = TLT_CLASS_HEAVY, /* vroundps vroundpd */
	[0x0a ... 0x0b] = TLT_CLASS_SCALAR, /* vroundss vroundsd */
	[0x0c ... 0x0f] = TLT_CLASS_LIGHT, /* vblendps .. vpalignr */
	[0x14 ... 0x19] = TLT_CLASS_LIGHT, /* vpextrb .. vextractf128 */
	[0x1d] = TLT_CLASS_HEAVY, /* vcvtps2ph */
	[0x20 ... 0x22] = TLT_CLASS_LIGHT, /* vpinsrb .. vpinsrq */
	[0x30 ... 0x33] = TLT_CLASS_OPMASK, /* kshiftrb .. kshiftlq */
	[0x38 ... 0x39] = TLT_CLASS_LIGHT, /* vinserti128 vextracti128 */
	[0x40 ... 0x41] = TLT_CLASS_HEAVY, /* vdpps vdppd */
	[0x42] = TLT_CLASS_LIGHT, /* vmpsadbw */
	[0x44] = TLT_CLASS_LIGHT, /* vpclmulqdq */
	[0x46] = TLT_CLASS_LIGHT, /* vperm2i128 */
	[0x48 ... 0x4c] = TLT_CLASS_LIGHT, /* vpermil2ps .. vpblendvb */
	[0x5c ... 0x5f] = TLT_CLASS_HEAVY, /* vfmaddsubps .. vfmsubaddpd */
	[0x60 ... 0x63] = TLT_CLASS_LIGHT, /* vpcmpestrm .. vpcmpistri */
	[0x68 ... 0x69] = TLT_CLASS_HEAVY, /* vfmaddps vfmaddpd */
	[0x6a ... 0x6b] = TLT_CLASS_SCALAR, /* vfmaddss vfmaddsd */
	[0x6c ... 0x6d] = TLT_CLASS_HEAVY, /* vfmsubps vfmsubpd */
	[0x6e ... 0x6f] = TLT_CLASS_SCALAR, /* vfmsubss vfmsubsd */
	[0x78 ... 0x79] = TLT_CLASS_HEAVY, /* vfnmaddps vfnmaddpd */
	[0x7a ... 0x7b] = TLT_CLASS_SCALAR, /* vfnmaddss vfnmaddsd */
	[0x7c ... 0x7d] = TLT_CLASS_HEAVY, /* vfnmsubps vfnmsubpd */
	[0x7e ... 0x7f] = TLT_CLASS_SCALAR, /* vfnmsubss vfnmsubsd */
	[0xce ... 0xcf] = TLT_CLASS_LIGHT, /* vgf2p8affineqb vgf2p8affineinvqb */
	[0xde ... 0xdf] = TLT_CLASS_LIGHT, /* vsm3rnds2 vaeskeygenassist */
};

static const u8 tlt_vex_map3_f2[256] = {
	[0xf0] = TLT_CLASS_GENERAL, /* rorx */
};

static const u8 tlt_xop_map8_np[256] = {
	[0x85 ... 0x87] = TLT_CLASS_HEAVY, /* vpmacssww vpmacsswd vpmacssdql */
	[0x8e ... 0x8f] = TLT_CLASS_HEAVY, /* vpmacssdd vpmacssdqh */
	[0x95 ... 0x97] = TLT_CLASS_HEAVY, /* vpmacsww vpmacswd vpmacsdql */
	[0x9e ... 0x9f] = TLT_CLASS_HEAVY, /* vpmacsdd vpmacsdqh */
	[0xa2 ... 0xa3] = TLT_CLASS_LIGHT, /* vpcmov vpperm */
	[0xa6] = TLT_CLASS_HEAVY, /* vpmadcsswd */
	[0xb6] = TLT_CLASS_HEAVY, /* vpmadcswd */
	[0xc0 ... 0xc3] = TLT_CLASS_LIGHT, /* vprotb .. vprotq */
	[0xcc ... 0xcf] = TLT_CLASS_LIGHT, /* vpcomb .. vpcomq */
	[0xec ... 0xef] = TLT_CLASS_LIGHT, /* vpcomub .. vpcomuq */
};

static const u8 tlt_xop_map9_np[256] = {
	[0x01 ... 0x02] = TLT_CLASS_GENERAL, /* blcfill .. blci */
	[0x12] = TLT_CLASS_GENERAL, /* llwpcb slwpcb */
	[0x80 ... 0x83] = TLT_CLASS_HEAVY, /* vfrczps .. vfrczsd */
	[0x90 ... 0x9b] = TLT_CLASS_LIGHT, /* vprotb .. vpshaq */
	[0xc1 ... 0xc3] = TLT_CLASS_LIGHT, /* vphaddbw vphaddbd vphaddbq */
	[0xc6 ... 0xc7] = TLT_CLASS_LIGHT, /* vphaddwd vphaddwq */
	[0xcb] = TLT_CLASS_LIGHT, /* vphadddq */
	[0xd1 ... 0xd3] = TLT_CLASS_LIGHT, /* vphaddubw vphaddubd vphaddubq */
	[0xd6 ... 0xd7] = TLT_CLASS_LIGHT, /* vphadduwd vphadduwq */
	[0xdb] = TLT_CLASS_LIGHT, /* vphaddudq */
	[0xe1 ... 0xe3] = TLT_CLASS_LIGHT, /* vphsubbw vphsubwd vphsubdq */
};

static const u8 tlt_xop_map10_np[256] = {
	[0x10] = TLT_CLASS_GENERAL, /* bextr */
	[0x12] = TLT_CLASS_GENERAL, /* lwpins lwpval */
};

/* By encoding, map, prefix (none, 66, F3, F2). */
static const u8 *const tlt_isa[3][TLT_ISA_MAPS][4] = {
	[TLT_ENC_EVEX][1][0] = tlt_evex_map1_np,
	[TLT_ENC_EVEX][1][1] = tlt_evex_map1_66,
	[TLT_ENC_EVEX][1][2] = tlt_evex_map1_f3,
	[TLT_ENC_EVEX][1][3] = tlt_evex_map1_f2,
	[TLT_ENC_EVEX][2][1] = tlt_evex_map2_66,
	[TLT_ENC_EVEX][2][2] = tlt_evex_map2_f3,
	[TLT_ENC_EVEX][2][3] = tlt_evex_map2_f2,
	[TLT_ENC_EVEX][3][0] = tlt_evex_map3_np,
	[TLT_ENC_EVEX][3][1] = tlt_evex_map3_66,
	[TLT_ENC_EVEX][3][2] = tlt_evex_map3_f3,
	[TLT_ENC_EVEX][5][0] = tlt_evex_map5_np,
	[TLT_ENC_EVEX][5][1] = tlt_evex_map5_66,
	[TLT_ENC_EVEX][5][2] = tlt_evex_map5_f3,
	[TLT_ENC_EVEX][5][3] = tlt_evex_map5_f2,
	[TLT_ENC_EVEX][6][0] = tlt_evex_map6_np,
	[TLT_ENC_EVEX][6][1] = tlt_evex_map6_66,
	[TLT_ENC_EVEX][6][2] = tlt_evex_map6_f3,
	[TLT_ENC_EVEX][6][3] = tlt_evex_map6_f2,
	[TLT_ENC_VEX][1][0] = tlt_vex_map1_np,
	[TLT_ENC_VEX][1][1] = tlt_vex_map1_66,
	[TLT_ENC_VEX][1][2] = tlt_vex_map1_f3,
	[TLT_ENC_VEX][1][3] = tlt_vex_map1_f2,
	[TLT_ENC_VEX][2][0] = tlt_vex_map2_np,
	[TLT_ENC_VEX][2][1] = tlt_vex_map2_66,
	[TLT_ENC_VEX][2][2] = tlt_vex_map2_f3,
	[TLT_ENC_VEX][2][3] = tlt_vex_map2_f2,
	[TLT_ENC_VEX][3][1] = tlt_vex_map3_66,
	[TLT_ENC_VEX][3][3] = tlt_vex_map3_f2,
	[TLT_ENC_XOP][8][0] = tlt_xop_map8_np,
	[TLT_ENC_XOP][9][0] = tlt_xop_map9_np,
	[TLT_ENC_XOP][10][0] = tlt_xop_map10_np,
};

/* clang-format on */

static inline u8 tlt_isa_class(u8 encoding, u8 map, u8 pp, u8 opcode)
{
	const u8 *classes = map < TLT_ISA_MAPS ? tlt_isa[encoding][map][pp] : 0;

	return classes ? classes[opcode] : (u8)TLT_CLASS_UNKNOWN;
}

#endif
