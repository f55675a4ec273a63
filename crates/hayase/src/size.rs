//! Sizes as people write them: `300MiB`, `1.5G`, `2GB`.
//!
//! Here: text to [`ByteCount`], and the default of an option. Not here: sizes for people to read (its `Display`).

use hayase_layout::ByteCount;

/// Why a text is no size.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    /// No digits in front.
    #[error("expected a number with a unit, for example 300MiB, 1.5G or 2TiB")]
    NoNumber,
    /// Letters that are no unit.
    #[error(
        "unknown unit `{unit}`: use KiB, MiB, GiB or TiB (or K, M, G, T) for powers of 1024, KB ... TB for powers of 1000; for example 64MiB"
    )]
    NoUnit {
        /// What stood after the number.
        unit: String,
    },
    /// Less than a byte.
    #[error("expected at least 1 byte, for example 1MiB")]
    Nothing,
    /// More than 2^64 bytes.
    #[error("expected less than 16 EiB, for example 1TiB")]
    TooLarge,
}

/// Reads a number, whole or with a decimal point, and a unit. K, M, G, T and KiB ... TiB are powers
/// of 1024, KB ... TB powers of 1000, none or B is bytes; case does not matter. Rounds down to a byte.
pub(crate) fn parse(text: &str) -> Result<ByteCount, SizeError> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim());
    if !number.contains(|c: char| c.is_ascii_digit()) {
        return Err(SizeError::NoNumber);
    }
    let factor = factor(unit).ok_or_else(|| SizeError::NoUnit { unit: unit.to_owned() })?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') {
        return Err(SizeError::NoNumber);
    }
    let too_large = || SizeError::TooLarge;
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_large())? };
    // Digits past the 18th are below a byte even for TiB.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = if fraction.is_empty() {
        0
    } else {
        let digits: u128 = fraction.parse().map_err(|_| too_large())?;
        digits * factor / 10u128.pow(fraction.len() as u32)
    };
    let bytes =
        whole.checked_mul(factor).and_then(|n| n.checked_add(part)).ok_or_else(too_large)?;
    match u64::try_from(bytes) {
        Ok(0) => Err(SizeError::Nothing),
        Ok(bytes) => Ok(ByteCount(bytes)),
        Err(_) => Err(too_large()),
    }
}

/// The default of an option, as one would type it: `16MiB`. Lives as long as the program: a few bytes for each option.
pub(crate) fn typed(bytes: ByteCount) -> &'static str {
    bytes.to_string().replace(' ', "").leak()
}

fn factor(unit: &str) -> Option<u128> {
    let unit = unit.to_ascii_lowercase();
    if unit.is_empty() || unit == "b" {
        return Some(1);
    }
    let power = 1 + "kmgt".find(unit.chars().next()?)? as u32;
    match &unit[1..] {
        "" | "i" | "ib" => Some(1024u128.pow(power)),
        "b" => Some(1000u128.pow(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, bytes: u64) {
        assert_eq!(parse(text), Ok(ByteCount(bytes)), "{text}");
    }

    #[test]
    fn numbers_with_units_are_sizes() {
        check("300MiB", 300 << 20);
        check("2GiB", 2 << 30);
        check("1.5G", 3 << 29);
        check("1.5g", 3 << 29);
        check(".5k", 512);
        check("4096", 4096);
        check("7B", 7);
        check("3.5TB", 3_500_000_000_000);
        check(" 1 MiB ", 1 << 20);
        check("1.0000000000000000000001K", 1024);
    }

    #[test]
    fn defaults_are_typed_as_they_are_read() {
        for bytes in [ByteCount::mib(1), ByteCount::mib(16), ByteCount::kib(64)] {
            assert_eq!(parse(typed(bytes)), Ok(bytes));
        }
        assert_eq!(typed(ByteCount::mib(16)), "16MiB");
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        let is = |text: &str, error| assert_eq!(parse(text), Err(error), "{text}");
        is("MiB", SizeError::NoNumber);
        is("", SizeError::NoNumber);
        is("1.2.3M", SizeError::NoNumber);
        is("-5M", SizeError::NoNumber);
        is("5 parsecs", SizeError::NoUnit { unit: "parsecs".into() });
        is("0", SizeError::Nothing);
        is("0.1B", SizeError::Nothing);
        is("99999999999T", SizeError::TooLarge);
    }
}
