//! Whole numbers of options, refused with the numbers that are possible.

use std::ops::RangeInclusive;

/// A parser for an option whose value lies in `range`.
pub(crate) fn within<N>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: TryFrom<u64>,
{
    move |text| {
        let number: Option<u64> = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| N::try_from(number).ok());
        let (first, last) = (range.start(), range.end());
        number.ok_or_else(|| match *last >= u64::from(u32::MAX) {
            true if *first == 0 => "expected a whole number, for example 100".to_owned(),
            true => {
                format!("expected a number of at least {first}, for example {}", first.max(&10))
            }
            false => format!("expected a number from {first} to {last}"),
        })
    }
}

/// A number of nodes, or 0 for all of them.
pub(crate) fn nodes_or_all(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "expected a number of nodes, for example 4, or 0 for all".to_owned())
}

/// A node of a job.
pub(crate) fn node(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "expected the number of a node, counted from 0".to_owned())
}

/// A parser for an option of seconds.
pub(crate) fn seconds(first: u32) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|seconds| *seconds >= first);
        let least = if first > 0 { format!(" from {first}") } else { String::new() };
        number.ok_or_else(|| format!("expected a whole number of seconds{least}, for example 60"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_their_range_are_refused() {
        let parse = within::<u8>(1..=30);
        assert_eq!((parse("1"), parse("30")), (Ok(1), Ok(30)));
        for text in ["0", "31", "x", "", "-1", "1.5"] {
            assert_eq!(parse(text), Err("expected a number from 1 to 30".to_owned()), "{text}");
        }
        // What the type does not hold is not taken for what it does.
        assert!(within::<u8>(1..=u64::MAX)("256").is_err());
        assert_eq!(
            within::<u64>(1..=u64::MAX)("0"),
            Err("expected a number of at least 1, for example 10".to_owned())
        );
        assert!(within::<u64>(0..=u64::MAX)("x").unwrap_err().contains("for example 100"));
        assert_eq!((nodes_or_all("0"), node("7")), (Ok(0), Ok(7)));
        assert!(nodes_or_all("x").is_err() && node("-1").is_err());
        assert_eq!(seconds(0)("0"), Ok(0));
        assert!(seconds(1)("0").unwrap_err().contains("seconds from 1, for example 60"));
    }
}
