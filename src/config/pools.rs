// SPDX-License-Identifier: Apache-2.0
//! `vips.pools`: from where Services of our load balancer class get their addresses.
//!
//! Input: the section `vips` of the file. Output: the pools in the order of the file. Invariant: no address is in two prefixes, so that it can be told
//! from which pool it comes.

use bgp::Prefix;

use super::read::{Reader, Section};
use super::{Pool, kinds};

/// Where a mistake is reported, the element that has it is left out.
pub(super) fn pools(reader: &mut Reader<'_>, vips: &Section<'_>) -> Vec<Pool> {
    let elements = reader.list(vips, "pools").unwrap_or_default();
    let mut pools: Vec<Pool> = Vec::new();
    for element in &elements {
        let section = reader.element(element);
        let name = reader.required(&section, "name", &kinds::POOL_NAME);
        let prefixes = prefixes(reader, &section, &pools);
        let Some(name) = name else { continue };
        if pools.iter().any(|pool| pool.name == name) {
            reader.report(section.place_of("name"), section.key("name"), format!("another pool is named '{name}'"));
        }
        pools.push(Pool { name, prefixes });
    }
    pools
}

fn prefixes(reader: &mut Reader<'_>, pool: &Section<'_>, earlier: &[Pool]) -> Vec<Prefix> {
    let elements = reader.list(pool, "prefixes").unwrap_or_default();
    if elements.is_empty() {
        reader.report(pool.place_of("prefixes"), pool.key("prefixes"), "expected at least one prefix such as 10.0.0.128/25".to_owned());
    }
    let mut prefixes: Vec<Prefix> = Vec::new();
    for element in &elements {
        let Some(prefix) = reader.scalar(element, &kinds::PREFIX) else { continue };
        let given = earlier.iter().flat_map(|pool| &pool.prefixes).chain(&prefixes);
        let overlap = given.copied().find(|other| other.contains(prefix.address()) || prefix.contains(other.address()));
        if let Some(other) = overlap {
            reader.report(
                element.place(),
                element.path().to_owned(),
                format!("{prefix} has addresses of {other}, which is in a pool already"),
            );
        }
        prefixes.push(prefix);
    }
    prefixes
}
