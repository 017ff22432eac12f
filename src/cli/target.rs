// SPDX-License-Identifier: Apache-2.0
//! `vipherald target`: what an init container runs so that its pod can stand behind a VIP with forwarding `dr`, `tun` or `gue`. Each change is printed
//! once it is made, so that what was done before an error is known.

use std::net::IpAddr;

use clap::{Args, ValueEnum};

use super::{Failure, block_on, print};
use crate::target::{self, Target, TargetError, Tunnel};

#[derive(Args, Debug)]
pub(super) struct TargetOptions {
    /// The VIPs
    #[arg(long, value_name = "ADDRESS", required = true, num_args = 1.., value_delimiter = ',', value_parser = vip)]
    vip: Vec<IpAddr>,
    /// The tunnel by which packets come: ipip for forwarding tun, gue for gue; none for dr
    #[arg(long, value_name = "TYPE")]
    tunnel: Option<TunnelType>,
    /// The UDP port to which they come with --tunnel gue, dataplane.tunnel.port of the router nodes
    #[arg(long, default_value_t = 6080, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Undo it; settings of the kernel stay, and what others placed or still use
    #[arg(long)]
    remove: bool,
    /// Only print what would be changed
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TunnelType {
    /// IP in IP
    Ipip,
    /// Generic UDP Encapsulation
    Gue,
}

pub(super) fn target(options: TargetOptions) -> Result<(), Failure> {
    let tunnel = options.tunnel.map(|tunnel| match tunnel {
        TunnelType::Ipip => Tunnel::Ipip,
        TunnelType::Gue => Tunnel::Gue(options.port),
    });
    let wanted = Target { vips: options.vip.into_iter().collect(), tunnel };
    block_on("target", work(&wanted, options.remove, options.dry_run))?
}

async fn work(wanted: &Target, remove: bool, dry_run: bool) -> Result<(), Failure> {
    let failed = |error: TargetError| Failure::verb("target", error);
    let changes = target::changes(wanted, remove).await.map_err(failed)?;
    for change in &changes {
        if !dry_run {
            target::make(change).await.map_err(failed)?;
        }
        print(&format!("{change}\n"))?;
    }
    if changes.is_empty() { print("nothing to do\n") } else { Ok(()) }
}

/// An address that several hosts may have, which loopback and link-local ones are not.
fn vip(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|error| format!("{error}"))?;
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some(),
    };
    if is_link_local || address.is_loopback() || address.is_unspecified() || address.is_multicast() {
        return Err("this is no address for a VIP".to_owned());
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Cli, Verb};
    use super::*;

    #[test]
    fn vips_are_addresses_that_several_hosts_may_have() {
        for good in ["10.232.35.199", "2001:db8:7::1"] {
            assert_eq!(vip(good).unwrap().to_string(), good);
        }
        for bad in [
            "127.0.0.1",
            "169.254.1.1",
            "255.255.255.255",
            "0.0.0.0",
            "224.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "vip",
        ] {
            assert!(vip(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_example_of_an_init_container_can_be_run() {
        let example = include_str!("../../examples/target/deployment.yaml");
        let deployment: serde_json::Value = serde_saphyr::from_str(example).unwrap();
        let args = deployment.pointer("/spec/template/spec/initContainers/0/args").and_then(|args| args.as_array()).unwrap();
        let words = args.iter().map(|word| word.as_str().unwrap());
        let Verb::Target(options) = Cli::try_parse_from(["vipherald"].into_iter().chain(words)).unwrap().verb else { panic!("{args:?}") };
        assert_eq!(options.vip, ["10.232.35.199".parse::<IpAddr>().unwrap()]);
        assert!(matches!(options.tunnel, Some(TunnelType::Ipip)) && !options.remove);
    }
}
