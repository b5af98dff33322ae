// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which form of its ciphers OpenSSL executes, for loads of experiments: SSE or AVX-512, the latter
//! also with `libturbolane_openssl.so` preloaded, so that each call of a cipher is a wide section.
//!
//! `OPENSSL_ia32cap` chooses the form. OpenSSL by itself leaves AVX-512 alone on Skylake-X, so it
//! has to be given back; and the AVX2 form of ChaCha20-Poly1305 asks for level 1, so that code
//! without any wide instruction must lose AVX2 as well.

use anyhow::{Result, bail};
use hw::{Live, Source};

/// AVX512F, DQ, IFMA, CD, BW and VL of CPUID leaf 7, EBX.
const AVX512: u32 = 0xd023_0000;
/// AVX2 there.
const AVX2: u32 = 0x20;

/// Of AVX-512 code: heavy 512-bit multiplications of Poly1305.
const LEVEL: &str = "2";

/// A form of OpenSSL's ciphers, as an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// `OPENSSL_ia32cap`.
    cap: String,
    /// Whether the program gets the preloaded library.
    has_hints: bool,
}

impl Code {
    /// SSE code.
    pub fn none() -> Self {
        Code { cap: format!(":~0x{:x}", AVX512 | AVX2), has_hints: false }
    }

    /// By name: `none`, `wide` (AVX-512), or that with `hints`.
    pub fn parse(name: &str) -> Result<Self> {
        let has_hints = match name {
            "none" => return Ok(Self::none()),
            "wide" => false,
            "hints" => true,
            _ => bail!("CODE is none, wide or hints, not \"{name}\""),
        };
        let leaf = Live.cpuid(7, 0);
        Ok(Code { cap: format!(":0x{:x}{:08x}", leaf.ecx, leaf.ebx), has_hints })
    }

    /// What a program needs in its environment.
    pub fn environment(&self) -> Vec<(&'static str, &str)> {
        let mut environment = vec![("OPENSSL_ia32cap", self.cap.as_str())];
        if self.has_hints {
            environment.push(("LD_PRELOAD", "libturbolane_openssl.so"));
            environment.push(("TURBOLANE_OPENSSL", LEVEL));
        }
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_environments() {
        assert_eq!(Code::none().environment(), [("OPENSSL_ia32cap", ":~0xd0230020")]);
        let (wide, hints) = (Code::parse("wide").unwrap(), Code::parse("hints").unwrap());
        assert_eq!(wide.environment()[0], hints.environment()[0], "the same code");
        assert_eq!((wide.environment().len(), hints.environment().len()), (1, 3));
    }

    #[test]
    fn an_unknown_form_fails() {
        assert!(Code::parse("mmx").is_err());
    }
}
