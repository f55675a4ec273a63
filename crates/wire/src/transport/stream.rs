//! Frames over byte streams: what TCP and Unix sockets share.
//!
//! Receiving: one small read-ahead buffer takes a header with its body in one system call; of the
//! payload only what came along with them is copied, all the rest is read where it belongs.
//! While much payload is to come, the reader asks to be woken only when a good part of it is there.
//! Sending: one vectored write for header, body and payload, again only when the socket was full.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{FrameReceiver, FrameSender, LocalFuture, TransportError};
use crate::header::HEADER_BYTES;
use crate::limits::{LOW_WATER_BYTES, READ_AHEAD_BYTES, SEGMENT_BYTES};

pub(super) struct StreamSender<W> {
    writer: W,
}

/// The sending half of a stream.
pub(super) trait Writer: AsyncWrite + Unpin + 'static {
    /// As [`FrameSender::notice_loss_within`].
    fn notice_loss_within(&self, wait: Duration) -> io::Result<()>;
}

/// The receiving half of a stream.
pub(super) trait Reader: AsyncRead + Unpin + 'static {
    /// Counts as readable when `bytes` wait, as far as the stream can do that.
    fn readable_at(&self, bytes: usize) -> io::Result<()>;
}

pub(super) struct StreamReceiver<R> {
    reader: R,
    /// What [`Reader::readable_at`] was told last.
    low_water: usize,
    /// Read and not yet asked for: `ahead[start..end]`.
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<W> StreamSender<W> {
    pub(super) fn new(writer: W) -> Self {
        Self { writer }
    }
}

impl<W: Writer> FrameSender for StreamSender<W> {
    fn notice_loss_within(&self, wait: Duration) {
        if let Err(error) = self.writer.notice_loss_within(wait) {
            tracing::warn!(%error, "a peer that is lost will be noticed late");
        }
    }

    fn send<'a>(
        &'a mut self,
        header: &'a [u8; HEADER_BYTES],
        body: &'a [u8],
        payload: &'a [u8],
    ) -> LocalFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut slices = [IoSlice::new(header), IoSlice::new(body), IoSlice::new(payload)];
            let mut left = &mut slices[..];
            while !left.is_empty() {
                let written =
                    poll_fn(|cx| Pin::new(&mut self.writer).poll_write_vectored(cx, left))
                        .await
                        .map_err(send_failed)?;
                if written == 0 {
                    return Err(send_failed(io::ErrorKind::WriteZero.into()));
                }
                IoSlice::advance_slices(&mut left, written);
            }
            Ok(())
        })
    }
}

fn send_failed(source: io::Error) -> TransportError {
    TransportError::Io { action: "send a frame", source }
}

impl<R: Reader> StreamReceiver<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, low_water: 1, ahead: vec![0; READ_AHEAD_BYTES].into(), start: 0, end: 0 }
    }

    /// Has the next wake-up wait for that much of the `left` bytes of a payload.
    fn set_low_water(&mut self, left: usize) -> Result<(), TransportError> {
        let bytes = if left < SEGMENT_BYTES { 1 } else { left.min(LOW_WATER_BYTES) };
        if bytes != self.low_water {
            let set = self.reader.readable_at(bytes);
            set.map_err(|source| TransportError::Io { action: "receive a payload", source })?;
            self.low_water = bytes;
        }
        Ok(())
    }

    /// One read into `ahead`, behind what is there; 0 at the end of the stream.
    async fn read_ahead(&mut self, action: &'static str) -> Result<usize, TransportError> {
        if self.start > 0 {
            self.ahead.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let count = read_some(&mut self.reader, &mut self.ahead[self.end..], action).await?;
        self.end += count;
        Ok(count)
    }

    /// Moves read-ahead bytes to the start of `into`.
    fn take_ahead(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.end - self.start);
        into[..count].copy_from_slice(&self.ahead[self.start..self.start + count]);
        self.start += count;
        count
    }
}

async fn read_some<R: AsyncRead + Unpin>(
    reader: &mut R,
    into: &mut [u8],
    action: &'static str,
) -> Result<usize, TransportError> {
    let mut buffer = ReadBuf::new(into);
    poll_fn(|cx| Pin::new(&mut *reader).poll_read(cx, &mut buffer))
        .await
        .map_err(|source| TransportError::Io { action, source })?;
    Ok(buffer.filled().len())
}

impl<R: Reader> FrameReceiver for StreamReceiver<R> {
    fn header(&mut self) -> LocalFuture<'_, Result<Option<[u8; HEADER_BYTES]>, TransportError>> {
        Box::pin(async move {
            while self.end - self.start < HEADER_BYTES {
                if self.read_ahead("receive a header").await? == 0 {
                    if self.end > self.start {
                        return Err(TransportError::Truncated { action: "receive a header" });
                    }
                    return Ok(None);
                }
            }
            let mut header = [0; HEADER_BYTES];
            self.take_ahead(&mut header);
            Ok(Some(header))
        })
    }

    fn body<'a>(&'a mut self, into: &'a mut [u8]) -> LocalFuture<'a, Result<(), TransportError>> {
        const ACTION: &str = "receive a body";
        Box::pin(async move {
            let mut filled = self.take_ahead(into);
            while filled < into.len() {
                let left = into.len() - filled;
                if left < READ_AHEAD_BYTES / 2 {
                    // Small: the next frame may come along.
                    if self.read_ahead(ACTION).await? == 0 {
                        return Err(TransportError::Truncated { action: ACTION });
                    }
                    filled += self.take_ahead(&mut into[filled..]);
                } else {
                    match read_some(&mut self.reader, &mut into[filled..], ACTION).await? {
                        0 => return Err(TransportError::Truncated { action: ACTION }),
                        count => filled += count,
                    }
                }
            }
            Ok(())
        })
    }

    fn payload<'a>(
        &'a mut self,
        into: &'a mut [u8],
    ) -> LocalFuture<'a, Result<usize, TransportError>> {
        const ACTION: &str = "receive a payload";
        Box::pin(async move {
            let ahead = self.take_ahead(into);
            if ahead > 0 {
                return Ok(ahead);
            }
            self.set_low_water(into.len())?;
            let count = read_some(&mut self.reader, into, ACTION).await?;
            if count == into.len() {
                // What follows is a header.
                self.set_low_water(1)?;
            }
            match count {
                0 => Err(TransportError::Truncated { action: ACTION }),
                count => Ok(count),
            }
        })
    }
}
