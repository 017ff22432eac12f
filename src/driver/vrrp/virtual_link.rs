// SPDX-License-Identifier: Apache-2.0
//! The links with a virtual router MAC (RFC 9568 §7.3): of each family a macvlan on the interface of the group, which has the addresses in place of it.
//!
//! Input: the family, the VRID, and the index of the interface. Output: the name, which is known without asking, and whether a link of that name is this.
//!
//! Such a link tells by its alias which instance has made it, so that a next process knows it without any record: whatever is on it goes with it.
//!
//! Invariants: such a link is up only while it has an address, for a Backup Router takes no packet that goes to the virtual router MAC (RFC 9568 §6.4.2); it
//! makes no address of its own, and takes none from routers on the link; we send nothing from it: advertisements and
//! announcements leave by the interface, with its MAC in their frames. What the kernel sends from it, as answers of ARP and ND, it sends while this is the Active Router.

use vrrp::{Family, Vrid};

use super::netlink::Link;

/// One of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct VirtualLink {
    pub(super) family: Family,
    pub(super) vrid: Vrid,
    /// The index of the interface that it is on.
    pub(super) parent: u32,
}

impl VirtualLink {
    /// Fifteen octets at most, as names of interfaces have.
    pub(super) fn name(self) -> String {
        format!("{}-{}-{:x}", word(self.family), self.vrid, self.parent)
    }

    /// The one of this name, if it is a name of such links.
    pub(super) fn named(name: &str) -> Option<Self> {
        let [word_of_family, vrid, parent] = name.split('-').collect::<Vec<_>>().try_into().ok()?;
        let family = [Family::Ipv4, Family::Ipv6].into_iter().find(|family| word(*family) == word_of_family)?;
        let link = Self { family, vrid: Vrid::new(vrid.parse().ok()?)?, parent: u32::from_str_radix(parent, 16).ok()? };
        (link.name() == name).then_some(link)
    }

    pub(super) fn mac(self) -> [u8; 6] {
        self.vrid.mac(self.family)
    }

    /// Whether the link that has this name is this one, of this instance.
    pub(super) fn is(self, link: Link) -> bool {
        link.ours && link.mac == Some(self.mac()) && link.parent == Some(self.parent)
    }
}

/// The alias of the links of an instance.
pub(super) fn alias(instance: &str) -> String {
    format!("vipherald instance {instance}")
}

const fn word(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "v4",
        Family::Ipv6 => "v6",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_and_says_all() {
        for (family, vrid, parent, name) in
            [(Family::Ipv4, 106, 3, "v4-106-3"), (Family::Ipv6, 255, 0x7FFF_FFFF, "v6-255-7fffffff"), (Family::Ipv4, 1, 10, "v4-1-a")]
        {
            let link = VirtualLink { family, vrid: Vrid::new(vrid).unwrap(), parent };
            assert_eq!((link.name().as_str(), VirtualLink::named(name)), (name, Some(link)));
            assert!(name.len() <= 15);
        }
        for other in ["eth0", "v4-106", "v4-0-3", "v4-106-03", "v4-106-A", "v5-106-3", "v4-106-3-1", "v4-256-3"] {
            assert_eq!(VirtualLink::named(other), None, "{other}");
        }
    }

    #[test]
    fn rfc9568_7_3_a_link_of_the_name_is_ours_by_its_mac_its_interface_and_its_alias() {
        let ours = VirtualLink { family: Family::Ipv6, vrid: Vrid::new(106).unwrap(), parent: 3 };
        let found =
            Link { index: 9, running: false, up: false, mac: Some([0x00, 0x00, 0x5E, 0x00, 0x02, 106]), parent: Some(3), ours: true };
        assert!(ours.is(found));
        for other in
            [Link { mac: None, ..found }, Link { parent: None, ..found }, Link { parent: Some(4), ..found }, Link { ours: false, ..found }]
        {
            assert!(!ours.is(other), "{other:?}");
        }
    }
}
