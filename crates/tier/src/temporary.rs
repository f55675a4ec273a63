//! Names of unfinished uploads: hidden from listings, beside their target, found by the sweep.

use std::hash::{BuildHasher, RandomState};

/// Names tried; each is 64 random bits, so a second try is already strange.
const NAME_TRIES_MAX: usize = 8;

/// Calls `make` with a name after `prefix` that nobody has, again while the answer says that the name is taken.
pub(crate) fn with_temporary_name<T, E>(
    prefix: &[u8],
    make: impl Fn(&[u8]) -> Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> Result<(Vec<u8>, T), E> {
    let mut tries = 1;
    loop {
        let mut name = prefix.to_vec();
        name.extend_from_slice(format!("{:016x}", RandomState::new().hash_one(0)).as_bytes());
        match make(&name) {
            Err(error) if is_taken(&error) && tries < NAME_TRIES_MAX => tries += 1,
            answer => return answer.map(|made| (name, made)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::key::TEMPORARY_PREFIX;

    #[test]
    fn names_that_are_taken_are_tried_again_but_not_for_ever() {
        let seen = RefCell::new(Vec::new());
        let make = |name: &[u8]| {
            seen.borrow_mut().push(name.to_vec());
            if seen.borrow().len() == 3 { Ok(7) } else { Err("taken") }
        };
        let (name, made) = with_temporary_name(TEMPORARY_PREFIX, make, |_| true).unwrap();
        assert_eq!((made, &name), (7, &seen.borrow()[2]));
        assert!(name.starts_with(TEMPORARY_PREFIX) && seen.borrow()[0] != seen.borrow()[1]);
        let fails = |why, is_taken: bool| {
            with_temporary_name(TEMPORARY_PREFIX, |_| Err::<(), _>(why), |_| is_taken)
        };
        assert_eq!((fails("taken", true), fails("other", false)), (Err("taken"), Err("other")));
    }
}
