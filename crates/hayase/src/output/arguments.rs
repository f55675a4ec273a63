//! The options of every command that say how it talks, and the only place where their meaning is decided.

use std::io::{self, IsTerminal};

use clap::{ArgAction, ColorChoice, ValueEnum};
use tracing::level_filters::LevelFilter;

use super::headings::GLOBAL;

/// As typed.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct OutputArgs {
    /// Print results as JSON, and errors as JSON on standard error
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Print only results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = GLOBAL)]
    quiet: bool,
    /// Log retries and warnings to standard error; repeat for more
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
    /// Show no progress bars
    #[arg(long, global = true, help_heading = GLOBAL)]
    no_progress: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t, help_heading = GLOBAL)]
    color: Color,
}

/// When results have colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// What was meant: how this run talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    pub(super) is_json: bool,
    pub(super) is_quiet: bool,
    pub(super) has_colour: bool,
    pub(super) shows_progress: bool,
    /// `None`: as the command does by itself.
    pub(super) log: Option<LevelFilter>,
}

impl Manner {
    /// Of a process that another one listens to.
    pub(super) const OF_WORKER: Self = Self {
        is_json: true,
        is_quiet: false,
        has_colour: false,
        shows_progress: false,
        log: None,
    };
}

impl OutputArgs {
    /// What they mean here; `no_color` is the environment's wish.
    pub(super) fn manner(self, no_color: bool) -> Manner {
        self.manner_on(no_color, io::stdout().is_terminal(), io::stderr().is_terminal())
    }

    fn manner_on(self, no_color: bool, has_terminal: bool, shows_errors: bool) -> Manner {
        let has_colour = match self.color {
            Color::Auto => has_terminal && !no_color,
            Color::Always => true,
            Color::Never => false,
        };
        Manner {
            is_json: self.json,
            is_quiet: self.quiet,
            has_colour: has_colour && !self.json,
            shows_progress: shows_errors && !self.json && !self.quiet && !self.no_progress,
            // Also of quiet commands: their warnings are about data.
            log: match self.verbose {
                0 => None,
                1 => Some(LevelFilter::INFO),
                2 => Some(LevelFilter::DEBUG),
                _ => Some(LevelFilter::TRACE),
            },
        }
    }
}

/// Words that are ours: those behind `--` belong to the program to be run.
pub(super) fn words() -> impl Iterator<Item = String> {
    let typed = std::env::args_os().skip(1).take_while(|word| word != "--");
    typed.map(|word| word.to_string_lossy().into_owned())
}

/// JSON was asked for, as far as that is known of arguments that were not understood.
pub(super) fn words_ask_for_json() -> bool {
    words().any(|word| word == "--json")
}

/// How help and wrong usage are coloured: they are printed before the arguments are understood.
pub(crate) fn colour_of_help() -> ColorChoice {
    colour_of(words())
}

fn colour_of(words: impl Iterator<Item = String>) -> ColorChoice {
    let mut is_next = false;
    for word in words {
        let value = word.strip_prefix("--color=").or_else(|| is_next.then_some(word.as_str()));
        match value {
            Some("always") => return ColorChoice::Always,
            Some("never") => return ColorChoice::Never,
            _ => is_next = word == "--color",
        }
    }
    ColorChoice::Auto
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: OutputArgs = OutputArgs {
        json: false,
        quiet: false,
        verbose: 0,
        no_progress: false,
        color: Color::Auto,
    };

    #[test]
    fn colours_are_for_terminals_and_never_in_json() {
        let has = |args: OutputArgs, no_color, is_terminal| {
            args.manner_on(no_color, is_terminal, true).has_colour
        };
        assert!(has(NOTHING, false, true));
        assert!(!has(NOTHING, true, true));
        assert!(!has(NOTHING, false, false));
        let always = OutputArgs { color: Color::Always, ..NOTHING };
        assert!(has(always, true, false));
        assert!(!has(OutputArgs { json: true, ..always }, false, true));
        assert!(!has(OutputArgs { color: Color::Never, ..NOTHING }, false, true));
    }

    #[test]
    fn progress_is_for_terminals_and_may_be_refused() {
        let shows = |args: OutputArgs, is| args.manner_on(false, true, is).shows_progress;
        assert!(shows(NOTHING, true));
        assert!(!shows(NOTHING, false));
        assert!(!shows(OutputArgs { quiet: true, ..NOTHING }, true));
        assert!(!shows(OutputArgs { no_progress: true, ..NOTHING }, true));
        assert!(!shows(OutputArgs { json: true, ..NOTHING }, true));
    }

    #[test]
    fn each_v_logs_more() {
        let log = |args: OutputArgs| args.manner_on(false, false, false).log;
        assert_eq!(log(NOTHING), None);
        assert_eq!(log(OutputArgs { quiet: true, ..NOTHING }), None);
        let of = |verbose| log(OutputArgs { verbose, ..NOTHING });
        assert_eq!([of(1), of(2)], [Some(LevelFilter::INFO), Some(LevelFilter::DEBUG)]);
        assert_eq!([of(3), of(9)], [Some(LevelFilter::TRACE); 2]);
    }

    #[test]
    fn help_has_the_colour_that_was_typed() {
        let of = |words: &str| colour_of(words.split(' ').map(str::to_owned));
        assert_eq!(of("up --color never --help"), ColorChoice::Never);
        assert_eq!(of("--color=always"), ColorChoice::Always);
        assert_eq!(of("up --color auto"), ColorChoice::Auto);
        assert_eq!(of("up never"), ColorChoice::Auto);
    }
}
