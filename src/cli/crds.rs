// SPDX-License-Identifier: Apache-2.0
//! `vipherald crds` prints the CustomResourceDefinitions, `vipherald crds apply` installs them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Failure, block_on, print};
use crate::api::crd;
use crate::source::kube::{Access, install};

#[derive(Args, Debug)]
pub(super) struct Crds {
    #[command(subcommand)]
    verb: Option<CrdsVerb>,
}

#[derive(Debug, Subcommand)]
enum CrdsVerb {
    /// Install or update them in the cluster; those of a later version stay as they are. Several may do so at once
    Apply {
        /// The kubeconfig file with the way to the API server [default: that of KUBECONFIG, else that of the pod]
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
    },
}

/// Prints or installs the definitions.
pub(super) fn crds(options: Crds) -> Result<(), Failure> {
    let Some(CrdsVerb::Apply { kubeconfig }) = options.verb else {
        return crd::definitions().iter().try_for_each(|definition| {
            let text = serde_saphyr::to_string(definition).map_err(|error| Failure::verb("crds", error))?;
            print(&format!("---\n{text}"))
        });
    };
    let verb = "crds apply";
    let access = Access::find(kubeconfig).map_err(|error| Failure::Usage { verb, message: error.to_string() })?;
    let outcomes = block_on(verb, async {
        let client = access.client().await.map_err(|error| Failure::verb(verb, error))?;
        install(&client).await.map_err(|error| Failure::verb(verb, error))
    })??;
    outcomes.iter().try_for_each(|(name, outcome)| print(&format!("{name}: {}\n", outcome.as_str())))
}
