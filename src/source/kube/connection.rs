// SPDX-License-Identifier: Apache-2.0
//! Where the API server is, and the client that all requests share.
//!
//! Input: a kubeconfig, or what the kubelet gives a pod. Output: a [`Client`]. It is made anew from the files after each failure that new credentials,
//! certificates or connections may mend; while that is not possible the one before goes on. Inside a cluster the server's address comes from
//! `KUBERNETES_SERVICE_HOST`, so that no name has to be resolved.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::telemetry::chain;

/// Where the way to the API server is described.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Access {
    /// In this file.
    Kubeconfig(PathBuf),
    /// In the environment and the ServiceAccount volume of this pod.
    Pod,
}

impl Access {
    /// The file that was named, else those of `KUBECONFIG`, else that of a pod.
    ///
    /// # Errors
    /// None of them is there.
    pub fn find(named: Option<PathBuf>) -> Result<Self, AccessError> {
        let from_environment = || std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
        match named.or_else(from_environment) {
            Some(path) => Ok(Self::Kubeconfig(path)),
            None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => Ok(Self::Pod),
            None => Err(AccessError::Nowhere),
        }
    }

    /// A client for this API server, with the credentials that the files hold now.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub async fn client(&self) -> Result<Client, AccessError> {
        let mut config = match self {
            Self::Kubeconfig(path) => {
                sys::look_up_hosts_by_files_and_dns().map_err(AccessError::Names)?;
                let broken = |source| AccessError::Kubeconfig { path: path.clone(), source };
                let kubeconfig = Kubeconfig::read_from(path).map_err(broken)?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(broken)?
            }
            Self::Pod => Config::incluster_env().map_err(AccessError::Pod)?,
        };
        // Each request is tried again where it is made, with its own patience.
        config.default_retry = false;
        Client::try_from(config).map_err(|source| AccessError::Unusable(source.into()))
    }

    /// The kubeconfig, where it is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Kubeconfig(path) => Some(path),
            Self::Pod => None,
        }
    }
}

/// Why nobody knows how to reach an API server.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Neither file nor pod.
    #[error("there is no API server: give --kubeconfig FILE, set KUBECONFIG, run in a pod, or give --manifests DIR")]
    Nowhere,
    /// A kubeconfig that cannot be used.
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// How names are looked up cannot be set.
    #[error("cannot set how the name of an API server is looked up")]
    Names(#[source] std::io::Error),
    /// The ServiceAccount volume or the environment is not as expected.
    #[error("cannot use the ServiceAccount of this pod")]
    Pod(#[source] kube::config::InClusterError),
    /// Certificates or credentials that are none.
    #[error("cannot make a client for the API server")]
    Unusable(#[source] Box<kube::Error>),
}

/// The client of the moment.
pub(super) struct Connection {
    access: Access,
    /// With the number of its generation.
    client: Mutex<(u64, Client)>,
    failures: AtomicU64,
}

impl Connection {
    pub(super) fn new(access: Access, client: Client) -> Self {
        Self { access, client: Mutex::new((0, client)), failures: AtomicU64::new(0) }
    }

    pub(super) fn client(&self) -> (u64, Client) {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes another client in place of this generation, unless somebody has done so.
    pub(super) async fn renew(&self, generation: u64) {
        if self.client().0 != generation {
            return;
        }
        match self.access.client().await {
            Ok(client) => {
                let mut current = self.client.lock().unwrap_or_else(PoisonError::into_inner);
                if current.0 == generation {
                    *current = (generation + 1, client);
                }
            }
            Err(error) => tracing::warn!(error = %chain(&error), "the credentials cannot be read again; those before are used"),
        }
    }

    /// One more request has failed.
    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests have failed, of all kinds.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}
