// SPDX-License-Identifier: Apache-2.0
//! Certificates and keys of a cluster that lives as long as a test.
//!
//! Output: a certification authority, certificates of servers on 127.0.0.1 that it signed, and a pair of keys for tokens; all of it as PEM.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// A certification authority.
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Something public and the private key that belongs to it.
pub(crate) struct Pair {
    /// A certificate, or a public key.
    pub(crate) public: String,
    /// The private key, as PKCS #8.
    pub(crate) private: String,
}

impl Authority {
    /// A new one.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// Its own certificate, which clients trust.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A certificate of a server on 127.0.0.1.
    pub(crate) fn server(&self) -> Pair {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        Pair { public: params.signed_by(&key, &self.issuer).unwrap().pem(), private: key.serialize_pem() }
    }
}

/// Keys with which tokens are signed and checked.
pub(crate) fn token_keys() -> Pair {
    let key = KeyPair::generate().unwrap();
    Pair { public: key.public_key_pem(), private: key.serialize_pem() }
}
