// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program with wide and scalar phases that says which is which.
//!
//! `cargo run -p turbolane --example hint`; under `turbolane run` the wide phases stay on wide
//! CPUs.

use turbolane::{Error, WideSection, wide_status};

/// Stands for heavy 512-bit code.
fn multiply(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn main() -> Result<(), Error> {
    println!("scheduler: {:?}", wide_status());
    let (a, b) = (vec![1.0; 4096], vec![2.0; 4096]);
    let mut sum = 0.0;
    for _ in 0..1000 {
        let section = WideSection::enter(2)?; // 2: heavy 512-bit code
        sum += multiply(&a, &b);
        drop(section);
        sum = sum.sqrt(); // scalar code, back on a scalar CPU
    }
    println!("sum: {sum}");
    Ok(())
}
