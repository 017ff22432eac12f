// SPDX-License-Identifier: Apache-2.0
//! `vipherald target`: what an init container runs so that its pod can stand behind a VIP with forwarding `dr`, `tun` or `gue`. Each change is printed
//! once it is made; where one fails, those before it are taken back.

use std::net::IpAddr;

use clap::{Args, ValueEnum};

use super::{Failure, block_on, print};
use crate::target::{self, Aim, Change, Part, Target, TargetError, Tunnel};
use crate::telemetry::chain;

#[derive(Args, Debug)]
pub(super) struct TargetOptions {
    /// The VIPs
    #[arg(long, value_name = "ADDRESS", required = true, num_args = 1.., value_delimiter = ',', value_parser = vip)]
    vip: Vec<IpAddr>,
    /// The tunnel by which packets come: ipip for forwarding tun, gue for gue; none for dr
    #[arg(long, value_name = "TYPE")]
    tunnel: Option<TunnelType>,
    /// The UDP port to which they come with --tunnel gue, dataplane.tunnel.port of the router nodes [default: 6080]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Only this part: settings of the kernel, the tunnel, or the addresses [default: all]
    #[arg(long, value_name = "PART")]
    only: Option<OnlyPart>,
    /// Take away the VIPs, too, that earlier runs have placed and that are not named
    #[arg(long, conflicts_with = "remove")]
    exact: bool,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OnlyPart {
    /// Below /proc/sys; this needs a privileged container
    Settings,
    /// Tunnel devices and the UDP port; this needs NET_ADMIN
    Tunnel,
    /// The VIPs on lo; this needs NET_ADMIN
    Addresses,
}

/// Where nobody says otherwise.
const GUE_PORT: u16 = 6080;

pub(super) fn target(options: TargetOptions) -> Result<(), Failure> {
    if options.port.is_some() && !matches!(options.tunnel, Some(TunnelType::Gue)) {
        return Err(Failure::Usage { verb: "target", message: "--port is that of --tunnel gue, which is missing".to_owned() });
    }
    let tunnel = options.tunnel.map(|tunnel| match tunnel {
        TunnelType::Ipip => Tunnel::Ipip,
        TunnelType::Gue => Tunnel::Gue(options.port.unwrap_or(GUE_PORT)),
    });
    let only = options.only.map(|only| match only {
        OnlyPart::Settings => Part::Settings,
        OnlyPart::Tunnel => Part::Tunnel,
        OnlyPart::Addresses => Part::Addresses,
    });
    let aim = match (options.remove, options.exact) {
        (true, _) => Aim::Remove,
        (false, true) => Aim::Exact,
        (false, false) => Aim::Add,
    };
    let wanted = Target { vips: options.vip.into_iter().collect(), tunnel, only };
    block_on("target", work(&wanted, aim, options.dry_run))?
}

async fn work(wanted: &Target, aim: Aim, dry_run: bool) -> Result<(), Failure> {
    let failed = |error: TargetError| Failure::verb("target", error);
    let changes = target::changes(wanted, aim).await.map_err(failed)?;
    let mut made = Vec::new();
    for change in &changes {
        if !dry_run && let Err(error) = target::make(change).await {
            undo(&made).await?;
            return Err(failed(error));
        }
        made.push(change);
        print(&format!("{change}\n"))?;
    }
    if changes.is_empty() { print("nothing to do\n") } else { Ok(()) }
}

/// Takes back what was made before a change that failed, the last first: half a target takes packets that it does not answer.
async fn undo(made: &[&Change]) -> Result<(), Failure> {
    for change in made.iter().rev().map(|change| change.undone()) {
        match target::make(&change).await {
            Ok(()) => print(&format!("undone: {change}\n"))?,
            Err(error) => print(&format!("not undone: {}\n", chain(&error)))?,
        }
    }
    Ok(())
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
