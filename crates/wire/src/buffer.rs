//! Buffers that a call or a service lends to the transport.

/// Bytes that stay where they are while a transport fills or sends them: a slot of a pool, a slot
/// of an arena, a vector.
///
/// `Send`, so that the same buffer can be handed to a thread that does blocking I/O.
pub trait Buffer: AsRef<[u8]> + AsMut<[u8]> + Send + 'static {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> Buffer for T {}

/// Any buffer; dropping it gives it back to where it came from.
pub type BoxBuffer = Box<dyn Buffer>;
