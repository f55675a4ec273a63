//! Progress of bytes on their way: how many, how fast, how long still; on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that vanishes with its value.
#[derive(Debug)]
pub(crate) struct TransferBar {
    bar: ProgressBar,
}

impl TransferBar {
    pub(super) fn new(is_shown: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if is_shown {
            let template = "{wide_bar} {bytes}/{total_bytes}{msg} {bytes_per_sec}, {eta} left";
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.expect("the template is a constant"));
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        Self { bar }
    }

    /// `moved` of `wanted` bytes; more may be wanted while the source is still being looked at.
    pub(crate) fn set(&self, moved: u64, wanted: u64, is_final: bool) {
        self.bar.set_length(wanted);
        self.bar.set_message(if is_final { "" } else { "+" });
        self.bar.set_position(moved);
    }
}

impl Drop for TransferBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
