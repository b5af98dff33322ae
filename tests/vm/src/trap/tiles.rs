// SPDX-License-Identifier: MIT OR Apache-2.0
//! AMX code for the tests: known values in all eight tiles, held over what may lose them, and a
//! product of matrices that can be checked.

use std::arch::asm;
use std::io;

use super::vectors::{calls_and_spins, mix};

/// What eight tiles of sixteen rows of 64 bytes hold.
pub type Tiles = [u64; 8 * 16 * 8];

/// Bytes of a tile's row, and how far apart rows lie in memory.
const ROW: usize = 64;

/// As LDTILECFG takes it: palette 1, and the shape of each tile.
#[repr(C, align(64))]
pub struct Shapes([u8; 64]);

impl Shapes {
    /// All tiles as large as they can be.
    pub fn full() -> Self {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        for tile in 0..8 {
            bytes[16 + 2 * tile] = ROW as u8;
            bytes[48 + tile] = 16;
        }
        Shapes(bytes)
    }
}

/// Asks the kernel for tiles, for this process and all that it starts.
pub fn permit() -> io::Result<()> {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const TILEDATA: libc::c_long = 18;
    // SAFETY: sets a permission of this process.
    match unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILEDATA) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Tiles full of values that depend on `seed`.
pub fn tiles(seed: u64) -> Box<Tiles> {
    Box::new(std::array::from_fn(|i| mix(seed.wrapping_add(i as u64))))
}

/// An instruction for each of the tiles; `\\n` is the tile's number.
macro_rules! each_tile {
    ($instruction:literal) => {
        concat!(".irp n, 0,1,2,3,4,5,6,7\n", $instruction, "\n.endr\n")
    };
}

/// Loads all tiles, makes the system call `number` with these arguments `calls` times, spins, and
/// returns what the tiles hold then, with the last call's result. The tiles are released at the
/// end.
pub fn hold(
    held: &Tiles,
    number: i64,
    arguments: [i64; 2],
    calls: u64,
    spins: u64,
) -> (Box<Tiles>, i64) {
    let shapes = Shapes::full();
    let mut after: Box<Tiles> = Box::new([0; 1024]);
    let mut result = 0_i64;
    // SAFETY: reads one image and writes another; the callers' system calls touch no memory of
    // ours. Tiles belong to nobody over a call.
    unsafe {
        asm!(
            "ldtilecfg [r8]",
            each_tile!("tileloadd tmm\\n, [r12 + r9 + 1024 * \\n]"),
            calls_and_spins!(),
            each_tile!("tilestored [r14 + r9 + 1024 * \\n], tmm\\n"),
            "tilerelease",
            in("r8") shapes.0.as_ptr(), in("r9") ROW,
            in("r12") held.as_ptr(), in("r14") after.as_mut_ptr(), in("r15") number,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") 0,
            inout("r13") calls => _, inout("r10") spins => _,
            inout("rax") result, out("rcx") _, out("r11") _,
        );
    }
    (after, result)
}

/// Whether a product of two matrices of small numbers (TDPBUUD) is what scalar code makes of them.
pub fn product_is_right(seed: u64) -> bool {
    let bytes = |seed: u64| -> Vec<u8> { (0..1024).map(|i| mix(seed + i) as u8 & 15).collect() };
    let (a, b, shapes) = (bytes(seed), bytes(seed ^ 0x1234), Shapes::full());
    let mut c = [0_u32; 256];
    // SAFETY: reads two matrices of 1,024 bytes and writes one.
    unsafe {
        asm!(
            "ldtilecfg [{shapes}]",
            "tilezero tmm0",
            "tileloadd tmm1, [{a} + {row}]",
            "tileloadd tmm2, [{b} + {row}]",
            "tdpbuud tmm0, tmm1, tmm2",
            "tilestored [{c} + {row}], tmm0",
            "tilerelease",
            shapes = in(reg) shapes.0.as_ptr(), row = in(reg) ROW,
            a = in(reg) a.as_ptr(), b = in(reg) b.as_ptr(), c = in(reg) c.as_mut_ptr(),
        );
    }
    // Row m of a holds 16 groups of four; column n of b too, group k in row k.
    (0..256).all(|i| {
        let (m, n) = (i / 16, i % 16);
        let of = |k: usize| u32::from(a[m * ROW + k]) * u32::from(b[k / 4 * ROW + 4 * n + k % 4]);
        c[i] == (0..ROW).map(of).sum::<u32>()
    })
}

/// So many products of tiles, and between them 99 instructions without a vector.
pub fn multiply(products: u64) {
    let shapes = Shapes::full();
    // SAFETY: changes tiles, which it releases, and registers that are named.
    unsafe {
        asm!(
            "ldtilecfg [{shapes}]",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "2:",
            "tdpbuud tmm0, tmm1, tmm2",
            "mov {inner:e}, 48",
            "3:",
            "dec {inner:e}",
            "jnz 3b",
            "dec {products}",
            "jnz 2b",
            "tilerelease",
            shapes = in(reg) shapes.0.as_ptr(), products = inout(reg) products.max(1) => _,
            inner = out(reg) _,
        );
    }
}

/// One tile instruction, of those that the kernel must permit.
pub fn touch() {
    let shapes = Shapes::full();
    // SAFETY: changes one tile, and releases it.
    unsafe {
        asm!("ldtilecfg [{}]", "tilezero tmm3", "tilerelease", in(reg) shapes.0.as_ptr());
    }
}
