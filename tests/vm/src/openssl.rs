// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which form of its ciphers OpenSSL executes, for loads of experiments: SSE or AVX-512, the latter
//! also with `libturbolane_openssl.so` or `libturbolane_marks.so` preloaded, so that each call of a
//! cipher is a wide section.
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

/// Marks of the functions through which libssl and programs reach the ciphers.
const MARKS: &str = "libcrypto.so.3:EVP_CipherUpdate@2;libcrypto.so.3:EVP_EncryptUpdate@2";

/// A form of OpenSSL's ciphers, as an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// `OPENSSL_ia32cap`.
    cap: String,
    /// The preloaded library, the variable that it reads, and its value.
    preloaded: Option<[&'static str; 3]>,
}

impl Code {
    /// SSE code.
    pub fn none() -> Self {
        Code { cap: format!(":~0x{:x}", AVX512 | AVX2), preloaded: None }
    }

    /// By name: `none`, `wide` (AVX-512), or that with `hints` or preloaded `marks`.
    pub fn parse(name: &str) -> Result<Self> {
        let preloaded = match name {
            "none" => return Ok(Self::none()),
            "wide" => None,
            "hints" => Some(["libturbolane_openssl.so", "TURBOLANE_OPENSSL", LEVEL]),
            "marks" => Some(["libturbolane_marks.so", "TURBOLANE_MARKS", MARKS]),
            _ => bail!("CODE is none, wide, hints or marks, not \"{name}\""),
        };
        let leaf = Live.cpuid(7, 0);
        Ok(Code { cap: format!(":0x{:x}{:08x}", leaf.ecx, leaf.ebx), preloaded })
    }

    /// What a program needs in its environment.
    pub fn environment(&self) -> Vec<(&'static str, &str)> {
        let mut environment = vec![("OPENSSL_ia32cap", self.cap.as_str())];
        if let Some([library, variable, value]) = self.preloaded {
            environment.extend([("LD_PRELOAD", library), (variable, value)]);
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
        assert_eq!(Code::parse("marks").unwrap().environment().len(), 3);
    }

    #[test]
    fn an_unknown_form_fails() {
        assert!(Code::parse("mmx").is_err());
    }
}
