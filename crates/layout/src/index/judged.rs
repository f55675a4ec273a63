//! Reading with the view that wrote, in an index of several layers.
//!
//! A record must be alone in all of them; whether it is among the others is found once, and remembered.
//! Not here: one layer ([`super::same_view`]).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::layer::Layer;
use crate::{LocalExtent, StreamExtent, View};

/// Which records of one layer are alone in the others too, as far as that was asked: by layer, view, record.
#[derive(Clone, Debug, Default)]
pub(super) struct Judged(Arc<Mutex<HashMap<[usize; 3], bool>>>);

impl Judged {
    fn get_or_init(&self, record: [usize; 3], judge: impl FnOnce() -> bool) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(record).or_insert_with(judge)
    }
}

/// Where the first bytes of `window` lie, as many as one record holds alone.
pub(super) fn find(
    view: &View,
    window: StreamExtent,
    layers: &[Arc<Layer>],
    judged: &Judged,
) -> Option<(u32, LocalExtent)> {
    // A record that is in two layers is longer in the later one.
    let (nth, found) = layers
        .iter()
        .enumerate()
        .rev()
        .find_map(|(nth, layer)| Some((nth, layer.same_view().at(view, window)?)))?;
    if !found.is_alone_in_layer(layers[nth].families()) {
        return None;
    }
    let others = || layers.iter().enumerate().filter(|(other, _)| *other != nth);
    let is_alone = || others().all(|(_, layer)| found.is_alone(layer.families()));
    let record = [nth, found.slot, found.record];
    if layers.len() > 1 && !judged.get_or_init(record, is_alone) {
        return None;
    }
    Some(found.place())
}
