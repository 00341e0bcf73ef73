//! A gRPC message as an HTTP body of two frames, its head and its data. HTTP/2 passes both to the
//! socket in place; tonic's own encoder would copy them into one buffer.

use crate::messages::DATA;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::codec::{DecodeBuf, Decoder};

/// The compression flag and a length of four bytes.
const PREFIX: usize = 5;

/// What follows the message.
#[derive(Debug)]
enum BodyEnd {
    /// Nothing: a request.
    Plain,
    /// The status OK: a reply.
    Trailers,
    Over,
}

/// State that lives as long as a stream.
pub(crate) trait StreamState: std::fmt::Debug + Send + 'static {}

/// See the module.
#[derive(Debug)]
pub(crate) struct GrpcBody {
    head: Option<Bytes>,
    data: Option<Bytes>,
    end: BodyEnd,
    /// Dropped when the peer ends the stream; until then the stream stays open.
    stream_state: Option<Box<dyn StreamState>>,
}

impl GrpcBody {
    fn new(message: &impl Message, data: Bytes, end: BodyEnd) -> Self {
        let (len, data_len) = (message.encoded_len(), data.len() as u64);
        let field = if data.is_empty() { 0 } else { key_len(DATA) + encoded_len_varint(data_len) };
        let mut head = BytesMut::with_capacity(PREFIX + len + field);
        head.put_u8(0);
        head.put_u32((len + field + data.len()) as u32);
        // Cannot fail: the capacity is reserved.
        let _ = message.encode(&mut head);
        if !data.is_empty() {
            encode_key(DATA, WireType::LengthDelimited, &mut head);
            encode_varint(data_len, &mut head);
        }
        Self { head: Some(head.freeze()), data: Some(data).filter(|data| !data.is_empty()), end, stream_state: None }
    }

    /// A request. `data` becomes its field `data`, which is empty in `message`.
    pub(crate) fn request(message: &impl Message, data: Bytes) -> Self {
        Self::new(message, data, BodyEnd::Plain)
    }

    /// The reply to a request that succeeded.
    pub(crate) fn answer(message: &impl Message, data: Bytes) -> Self {
        Self::new(message, data, BodyEnd::Trailers)
    }

    /// A message, followed by a stream that stays open until the peer ends it.
    pub(crate) fn with_stream_state(message: &impl Message, stream_state: impl StreamState) -> Self {
        Self { stream_state: Some(Box::new(stream_state)), ..Self::new(message, Bytes::new(), BodyEnd::Plain) }
    }
}

impl Body for GrpcBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(piece) = self.head.take().or_else(|| self.data.take()) {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if self.stream_state.is_some() {
            // No wake-up is needed: the end of the stream drops the body.
            return Poll::Pending;
        }
        match self.end {
            BodyEnd::Plain | BodyEnd::Over => Poll::Ready(None),
            BodyEnd::Trailers => {
                self.end = BodyEnd::Over;
                let good = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
                let trailers = HeaderMap::from_iter([good]);
                Poll::Ready(Some(Ok(Frame::trailers(trailers))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_none() && self.data.is_none() && self.stream_state.is_none() && matches!(self.end, BodyEnd::Plain | BodyEnd::Over)
    }
}

/// Decodes messages of one type.
#[derive(Debug)]
pub(crate) struct MessageDecoder<M>(pub(crate) std::marker::PhantomData<M>);

impl<M: Message + Default> Decoder for MessageDecoder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        M::decode(bytes).map(Some).map_err(|error| Status::invalid_argument(format!("malformed message: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::WriteRequest;

    fn frames(mut body: GrpcBody) -> Vec<Bytes> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut frames = Vec::new();
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) {
            frames.extend(frame.into_data());
        }
        frames
    }

    #[test]
    fn the_body_frames_encode_the_message_without_copying_data() {
        let data = Bytes::from(vec![7; 70_000]);
        let message = WriteRequest { session: 1 << 40, offset: 4096, fua: true, data: Bytes::new() };
        let frames = frames(GrpcBody::request(&message, data.clone()));
        assert_eq!(frames[1].as_ptr(), data.as_ptr());
        let bytes = frames.concat();
        assert_eq!(bytes[0], 0);
        assert_eq!(bytes[1..5], ((bytes.len() - PREFIX) as u32).to_be_bytes());
        assert_eq!(WriteRequest::decode(&bytes[PREFIX..]).unwrap(), WriteRequest { data, ..message });
    }

    #[test]
    fn a_message_without_data_is_one_frame() {
        let message = WriteRequest { session: 3, ..WriteRequest::default() };
        let frames = frames(GrpcBody::answer(&message, Bytes::new()));
        assert_eq!(frames.len(), 1);
        assert_eq!(WriteRequest::decode(&frames[0][PREFIX..]).unwrap(), message);
    }
}
