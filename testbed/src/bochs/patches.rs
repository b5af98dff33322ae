// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is put right in the source of Bochs 3.0 before it is built.
//!
//! - CPUID.0BH says how many bits of an APIC id number the threads of a core. Bochs says 1 where
//!   there is one thread, and so makes siblings of CPUs 0 and 1. The bits that number the CPUs of a
//!   package are those of threads and cores together; Bochs has those of cores, and so makes a
//!   package of each two cores with two threads.
//! - Where tiles may be used, decoded instructions lie in the next line's part of the instruction
//!   cache, and are not found there when their bytes change: a CPU executes what is no longer in
//!   memory.
//! - XRSTOR and XRSTORS omit a component that was not requested from the offset calculation of the
//!   next one: Linux restores PKRU itself, and therefore everything after it from the wrong place.
//! - Tiles are saved when none is in use instead of when one is, and only half of their rows; of
//!   their shapes, rows and columns change places.
//! - A file for the guest's memory goes into the host's as one piece, of which a part only belongs
//!   to these addresses: memory is in blocks, which are taken when they are first used.
//! - Extended feature disable (XFD) is missing, without which Linux offers no AMX. Added as far as
//!   Linux uses it, for TILEDATA alone, after SDM vol. 1, 13.14: two registers, CPUID, #NM at tile
//!   instructions (but for LDTILECFG, STTILECFG, TILERELEASE) and at an XRSTOR that would load
//!   tiles, and XSAVE that takes disabled tiles for unused.

/// A text in a file and what takes its place, wherever it stands.
pub(super) struct Patch {
    pub file: &'static str,
    pub text: &'static str,
    pub replacement: &'static str,
}

const fn patch(file: &'static str, text: &'static str, replacement: &'static str) -> Patch {
    Patch { file, text, replacement }
}

/// All of them.
pub(super) const PATCHES: &[Patch] = &[
    patch(
        "memory/misc_mem.cc",
        "get_vector(offset), size);",
        "get_vector(offset), size < 0x1000 - offset % 0x1000 ? size : 0x1000 - offset % 0x1000);",
    ),
    patch("cpu/cpuid.cc", "ilog2(nthreads-1)+1", "(nthreads > 1 ? ilog2(nthreads-1)+1 : 0)"),
    patch(
        "cpu/cpuid.cc",
        "ilog2(ncores-1)+1",
        "(nthreads > 1 ? ilog2(nthreads-1)+1 : 0) + (ncores > 1 ? ilog2(ncores-1)+1 : 0)",
    ),
    patch(
        "cpu/icache.h",
        "    Bit32u line_mask = (1 << n);\n    if (line_mask > mask) break;\n",
        "",
    ),
    patch(
        "cpu/xsave.cc",
        r#"tilecfg.vmm16u(8+n)    = BX_CPU_THIS_PTR amx->tilecfg[n].rows;
      tilecfg.vmmubyte(48+n) = BX_CPU_THIS_PTR amx->tilecfg[n].bytes_per_row;
"#,
        r#"tilecfg.vmm16u(8+n)    = BX_CPU_THIS_PTR amx->tilecfg[n].bytes_per_row;
      tilecfg.vmmubyte(48+n) = BX_CPU_THIS_PTR amx->tilecfg[n].rows;
"#,
    ),
    patch(
        "cpu/xsave.cc",
        r#"        if (format & feature_mask)
          offset += xsave_restore[feature].len;
      }
"#,
        r#"      }
      if (format & feature_mask)
        offset += xsave_restore[feature].len;
"#,
    ),
    patch("cpu/xsave.cc", "row < BX_TILE_REGISTERS", "row < BX_TILE_MAX_ROWS"),
    patch(
        "cpu/xsave.cc",
        "amx->tile_use_tracker == 0);  // all tiles are zero",
        "amx->tile_use_tracker != 0);",
    ),
    patch(
        "cpu/cpu.h",
        r#"  Bit64u ia32_xss;
"#,
        r#"  Bit64u ia32_xss;
  Bit64u ia32_xfd, ia32_xfd_err;
"#,
    ),
    patch(
        "cpu/init.cc",
        r#"  BX_CPU_THIS_PTR msr.ia32_xss = 0;
"#,
        r#"  BX_CPU_THIS_PTR msr.ia32_xss = 0;
  BX_CPU_THIS_PTR msr.ia32_xfd = BX_CPU_THIS_PTR msr.ia32_xfd_err = 0;
"#,
    ),
    patch(
        "cpu/msr.cc",
        "  msr_desc[BX_MSR_XSS] =",
        r#"  msr_desc[BX_MSR_IA32_XFD] = new MSR_Descriptor("MSR_IA32_XFD", BX_ISA_AMX);
  msr_desc[BX_MSR_IA32_XFD_ERROR] = new MSR_Descriptor("MSR_IA32_XFD_ERR", BX_ISA_AMX);
  msr_desc[BX_MSR_XSS] ="#,
    ),
    patch(
        "cpu/msr.cc",
        r#"      val64 = BX_CPU_THIS_PTR msr.ia32_xss;
      break;
"#,
        r#"      val64 = BX_CPU_THIS_PTR msr.ia32_xss;
      break;
    case BX_MSR_IA32_XFD:
      val64 = BX_CPU_THIS_PTR msr.ia32_xfd;
      break;
    case BX_MSR_IA32_XFD_ERROR:
      val64 = BX_CPU_THIS_PTR msr.ia32_xfd_err;
      break;
"#,
    ),
    patch(
        "cpu/msr.cc",
        r#"        BX_CPU_THIS_PTR msr.ia32_xss = val_64;
        break;
      }
"#,
        r#"        BX_CPU_THIS_PTR msr.ia32_xss = val_64;
        break;
      }
    case BX_MSR_IA32_XFD:
    case BX_MSR_IA32_XFD_ERROR:
      if (val_64 & ~Bit64u(BX_XCR0_XTILEDATA_MASK)) return false;
      (index == BX_MSR_IA32_XFD ? BX_CPU_THIS_PTR msr.ia32_xfd : BX_CPU_THIS_PTR msr.ia32_xfd_err) = val_64;
      handleAvxModeChange();
      break;
"#,
    ),
    patch(
        "cpu/cpuid.cc",
        r#"      leaf->eax |= (1<<3);

    // EBX[31:00]"#,
        r#"      leaf->eax |= (1<<3);
    if (is_cpu_extension_supported(BX_ISA_AMX))
      leaf->eax |= (1<<4);

    // EBX[31:00]"#,
    ),
    patch(
        "cpu/cpuid.cc",
        r#"      leaf->ecx = (cpu->ia32_xss_suppmask & (1 << subfunction)) != 0;
"#,
        r#"      leaf->ecx = (cpu->ia32_xss_suppmask & (1 << subfunction)) != 0;
      if (subfunction == xcr0_t::BX_XCR0_XTILEDATA_BIT)
        leaf->ecx |= (1<<2);
"#,
    ),
    patch(
        "cpu/proc_ctrl.cc",
        r#"      (~BX_CPU_THIS_PTR xcr0.val32 & (BX_XCR0_XTILECFG_MASK | BX_XCR0_XTILEDATA_MASK)) != 0)
    clear_amx_ok();"#,
        r#"      (~BX_CPU_THIS_PTR xcr0.val32 & (BX_XCR0_XTILECFG_MASK | BX_XCR0_XTILEDATA_MASK)) != 0 ||
      BX_CPU_THIS_PTR msr.ia32_xfd != 0)
    clear_amx_ok();"#,
    ),
    patch(
        "cpu/proc_ctrl.cc",
        r#"  if (~BX_CPU_THIS_PTR xcr0.val32 & (BX_XCR0_XTILECFG_MASK | BX_XCR0_XTILEDATA_MASK))
    exception(BX_UD_EXCEPTION, 0);

  BX_ASSERT(0);
"#,
        r#"  if (~BX_CPU_THIS_PTR xcr0.val32 & (BX_XCR0_XTILECFG_MASK | BX_XCR0_XTILEDATA_MASK))
    exception(BX_UD_EXCEPTION, 0);

  switch (i->getIaOpcode()) {
    case BX_IA_LDTILECFG:   LDTILECFG(i);   return;
    case BX_IA_STTILECFG:   STTILECFG(i);   return;
    case BX_IA_TILERELEASE: TILERELEASE(i); return;
    default: break;
  }
  BX_CPU_THIS_PTR msr.ia32_xfd_err |= BX_CPU_THIS_PTR msr.ia32_xfd;
  exception(BX_NM_EXCEPTION, 0);
"#,
    ),
    patch(
        "cpu/xsave.cc",
        r#"  Bit32u xinuse = get_xinuse_vector(requested_feature_bitmap);
"#,
        r#"  Bit32u xinuse = get_xinuse_vector(requested_feature_bitmap) & ~Bit32u(BX_CPU_THIS_PTR msr.ia32_xfd);
"#,
    ),
    patch(
        "cpu/xsave.cc",
        r#"  Bit32u restore_mask = xstate_bv & format;
"#,
        r#"  Bit32u restore_mask = xstate_bv & format;
  Bit64u disabled = requested_feature_bitmap & restore_mask & BX_CPU_THIS_PTR msr.ia32_xfd;
  if (disabled) {
    BX_CPU_THIS_PTR msr.ia32_xfd_err |= disabled;
    exception(BX_NM_EXCEPTION, 0);
  }
"#,
    ),
];
