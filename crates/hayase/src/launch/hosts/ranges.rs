//! Ranges in names of hosts: `n[01-04,7]`, `r[0-1]n[0-3]-ib`, and commas between names.
//!
//! A number keeps the width that the range's first number is written with. The leftmost bracket
//! changes slowest. Source: the hostlists of Slurm, scontrol(1).

use super::{HOSTS_MAX, HostsError};

/// Brackets in one name.
const BRACKETS_MAX: usize = 4;

/// All names that `text` stands for, in its order; repeated ones stay.
pub(crate) fn expand(text: &str) -> Result<Vec<String>, HostsError> {
    let mut names = Vec::new();
    for part in split_outside(text)? {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        names.extend(expand_name(part)?);
        if names.len() > HOSTS_MAX * 2 {
            return Err(HostsError::TooMany);
        }
    }
    Ok(names)
}

/// Cuts at the commas that stand in no bracket.
fn split_outside(text: &str) -> Result<Vec<&str>, HostsError> {
    let (mut parts, mut start, mut is_inside) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' if is_inside => return Err(HostsError::malformed(text, "`[` inside of `[ ]`")),
            '[' => is_inside = true,
            ']' if !is_inside => return Err(HostsError::malformed(text, "`]` without `[`")),
            ']' => is_inside = false,
            ',' if !is_inside => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err(HostsError::malformed(text, "`[` without `]`"));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn expand_name(name: &str) -> Result<Vec<String>, HostsError> {
    let mut names = vec![String::new()];
    let mut rest = name;
    let mut brackets = 0;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after.split_once(']').expect("brackets were matched before");
        brackets += 1;
        if brackets > BRACKETS_MAX {
            return Err(HostsError::malformed(name, format!("more than {BRACKETS_MAX} brackets")));
        }
        let numbers = numbers(inside, name)?;
        if names.len() * numbers.len() > HOSTS_MAX {
            return Err(HostsError::TooMany);
        }
        let with = |so_far: &String| {
            let so_far = format!("{so_far}{before}");
            numbers.iter().map(|number| format!("{so_far}{number}")).collect::<Vec<_>>()
        };
        names = names.iter().flat_map(with).collect();
        rest = behind;
    }
    Ok(names.into_iter().map(|so_far| so_far + rest).collect())
}

/// `01-04,7`, as texts.
fn numbers(inside: &str, name: &str) -> Result<Vec<String>, HostsError> {
    let wrong = |why: String| HostsError::malformed(name, why);
    let parse = |digits: &str| match digits.parse::<u64>() {
        Ok(number) if digits.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
        _ => Err(wrong(format!("`{digits}` in `[ ]` is not a number"))),
    };
    let mut numbers = Vec::new();
    for item in inside.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (from, to) = (parse(first)?, parse(last)?);
        if to < from {
            return Err(wrong(format!("the range `{item}` runs backwards")));
        }
        if (to - from) as usize >= HOSTS_MAX {
            return Err(HostsError::TooMany);
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_stand_for_names() {
        let check = |text: &str, expected: &str| {
            assert_eq!(expand(text).unwrap().join(" "), expected, "{text}");
        };
        check("n[01-04,7]", "n01 n02 n03 n04 n7");
        check("n[8-11]", "n8 n9 n10 n11");
        check("n[098-101]", "n098 n099 n100 n101");
        check("r[0-1]n[1-2]-ib", "r0n1-ib r0n2-ib r1n1-ib r1n2-ib");
        check("a[1,3],b,c[2-2]", "a1 a3 b c2");
        check("", "");
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for bad in ["n[", "n]", "n[1", "n[[1]]", "n[a]", "n[]", "n[1-]", "n[-1]", "n[3-1]", "n[+1]"]
        {
            assert!(matches!(expand(bad), Err(HostsError::Malformed { .. })), "{bad}");
        }
        for vast in ["n[0-99999999999]", "n[0-999]x[0-999]", "n[0-4000],m[0-4000],o[0-4000]"] {
            assert_eq!(expand(vast), Err(HostsError::TooMany), "{vast}");
        }
        assert!(expand("a[1]b[1]c[1]d[1]e[1]").is_err());
    }

    proptest! {
        /// Folding a run of numbers into a range and reading it gives the run.
        #[test]
        fn a_range_is_its_numbers_one_by_one(from in 0u64..2000, count in 1u64..50, width in 1usize..6) {
            let pad = |number: u64| format!("{number:0width$}");
            let wanted: Vec<String> =
                (from..from + count).map(|number| format!("n{}", pad(number))).collect();
            let text = format!("n[{}-{}]", pad(from), pad(from + count - 1));
            // A first number that outgrew its width is written with its own.
            prop_assert_eq!(expand(&text).unwrap(), wanted);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-c0-3\\[\\],\\- ]{0,24}") {
            let _ = super::super::parse_list(&text);
            let _ = super::super::parse_file(&text);
        }
    }
}
