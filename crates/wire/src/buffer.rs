//! Buffers that a call or a service lends to the transport.

use std::any::Any;
use std::rc::Rc;

/// Bytes that stay where they are while a transport fills or sends them: a slot of a pool, a slot
/// of an arena, a vector.
///
/// `Send`, so that the same buffer can be handed to a thread that does blocking I/O.
pub trait Buffer: AsRef<[u8]> + AsMut<[u8]> + Send + 'static {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> Buffer for T {}

/// Any buffer; dropping it gives it back to where it came from.
pub type BoxBuffer = Box<dyn Buffer>;

/// The first bytes of a buffer, lent to a transport that may use them behind the call that got them, as UCX does.
///
/// A transport holds on to the buffer as long as it uses it: where its future is forgotten, for ever. Until then nobody
/// changes the bytes here, or has the buffer back.
pub struct Loan {
    owner: Rc<Owner>,
    len: usize,
}

enum Owner {
    Buffer(BoxBuffer),
    Bytes(Vec<u8>),
}

impl Owner {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Buffer(buffer) => (**buffer).as_ref(),
            Self::Bytes(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Buffer(buffer) => (**buffer).as_mut(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Loan {
    /// The first `len` bytes of `buffer`, which has as many.
    pub fn new(buffer: BoxBuffer, len: usize) -> Self {
        Self { owner: Rc::new(Owner::Buffer(buffer)), len }
    }

    /// How many bytes are lent.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.owner.bytes()[..self.len]
    }

    /// The bytes, to be changed; `None` while a transport holds on to them.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(&mut Rc::get_mut(&mut self.owner)?.bytes_mut()[..self.len])
    }

    /// The buffer; `None` when a transport still holds on to it.
    pub fn end(self) -> Option<BoxBuffer> {
        match Rc::into_inner(self.owner)? {
            Owner::Buffer(buffer) => Some(buffer),
            Owner::Bytes(bytes) => Some(Box::new(bytes)),
        }
    }

    /// Its bytes as a vector; a copy where they are not in one that nobody else holds on to.
    pub fn into_bytes(self) -> Vec<u8> {
        match Rc::try_unwrap(self.owner) {
            Ok(Owner::Bytes(bytes)) => bytes,
            Ok(owner) => owner.bytes()[..self.len].to_vec(),
            Err(owner) => owner.bytes()[..self.len].to_vec(),
        }
    }

    /// Puts other bytes in place of those of a vector, in its room where nobody else holds on to it.
    pub(crate) fn refill(&mut self, bytes: &[u8]) -> &mut [u8] {
        if !matches!(Rc::get_mut(&mut self.owner), Some(Owner::Bytes(_))) {
            *self = Self::from(Vec::new());
        }
        self.len = bytes.len();
        match Rc::get_mut(&mut self.owner) {
            Some(Owner::Bytes(own)) => {
                own.clear();
                own.extend_from_slice(bytes);
                own
            }
            _ => unreachable!("a vector of its own"),
        }
    }

    /// As long as this lives the bytes stay where they are, and are changed by nobody else.
    pub fn hold(&self) -> Hold {
        Hold { _owner: Rc::clone(&self.owner) as Rc<dyn Any> }
    }
}

/// See [`Loan::hold`].
pub struct Hold {
    _owner: Rc<dyn Any>,
}

impl From<Vec<u8>> for Loan {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self { owner: Rc::new(Owner::Bytes(bytes)), len }
    }
}

impl std::fmt::Debug for Loan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loan({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_held_is_neither_changed_nor_given_back() {
        let mut loan = Loan::new(Box::new(vec![1, 2, 3]), 2);
        let hold = loan.hold();
        assert!(loan.bytes_mut().is_none());
        assert_eq!(loan.bytes(), [1, 2]);
        drop(hold);
        loan.bytes_mut().unwrap().fill(7);
        let hold = loan.hold();
        assert!(loan.end().is_none(), "held");
        drop(hold);
        let mut loan = Loan::from(vec![1, 2]);
        let hold = loan.hold();
        let first = loan.bytes().as_ptr();
        assert_ne!(loan.refill(&[3]).as_ptr(), first, "in other memory");
        assert_eq!(loan.bytes(), [3]);
        drop(hold);
        assert_eq!((*loan.end().unwrap()).as_ref(), [3]);
    }
}
