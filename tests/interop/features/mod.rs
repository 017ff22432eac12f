// SPDX-License-Identifier: Apache-2.0
//! One function for each row of the matrix: it is given a peer, and panics where the feature does not work with it.

pub(crate) mod attributes;
pub(crate) mod capabilities;
pub(crate) mod reflection;
pub(crate) mod restart;
pub(crate) mod routes;
pub(crate) mod session;
pub(crate) mod transport;
pub(crate) mod unnumbered;
