// SPDX-License-Identifier: Apache-2.0
//! The decoder of the kernel's family `IPVS` under arbitrary input. A function panics where the decoder does, or where what it decoded does not survive being
//! written again.

use ipvs::wire::{Frames, Message, Payload};

/// One datagram of a netlink socket.
pub fn datagram(input: &[u8]) {
    for frame in Frames::new(input).flatten() {
        if let Payload::Message(message) = frame.payload {
            assert_eq!(Message::decode(&message.encode()).ok().as_ref(), Some(&message));
        }
    }
}
