//! `pad`: adds a border of one value.

use crate::geometry::{Border, Chain};

/// Adds the border `[left, top, right, bottom]` to a chain.
pub fn apply(border: [u32; 4], value: u8, chain: &mut Chain) {
    let [left, top, right, bottom] = border;
    chain.pad(Border { left, top, right, bottom, value });
}
