//! One gRPC call over a connection.

use crate::codec::{GrpcBody, MessageDecoder};
use crate::messages::{OpenReply, path};
use http::{HeaderName, HeaderValue, Request};
use prost::Message;
use std::marker::PhantomData;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tower::{Service, ServiceExt};

async fn start<A>(mut channel: Channel, path: &'static str, body: GrpcBody) -> Result<Streaming<A>, Status>
where
    A: Message + Default + 'static,
{
    let mut request = Request::post(path).body(Body::new(body)).map_err(|error| Status::internal(error.to_string()))?;
    let headers = request.headers_mut();
    headers.insert(HeaderName::from_static("te"), HeaderValue::from_static("trailers"));
    headers.insert(HeaderName::from_static("content-type"), HeaderValue::from_static("application/grpc"));
    let channel = channel.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let response = channel.call(request).await.map_err(|error| Status::unavailable(error.to_string()))?;
    // A status in the headers means that no message follows.
    if let Some(status) = Status::from_header_map(response.headers()) {
        return Err(if status.code() == Code::Ok { Status::internal("a reply without a message") } else { status });
    }
    let code = response.status();
    Ok(Streaming::new_response(MessageDecoder(PhantomData), response.into_body(), code, None, None))
}

async fn first_message<A>(answer: &mut Streaming<A>) -> Result<A, Status> {
    answer.message().await?.ok_or_else(|| Status::internal("a reply without a message"))
}

/// A unary call.
pub(crate) async fn call<A>(channel: Channel, path: &'static str, request: GrpcBody) -> Result<A, Status>
where
    A: Message + Default + 'static,
{
    let mut answer = start(channel, path, request).await?;
    let message = first_message(&mut answer).await?;
    // The status follows the message.
    answer.trailers().await?;
    Ok(message)
}

/// Opens a session: the store's reply, and the stream that keeps the session.
pub(crate) async fn open_session(channel: Channel, request: GrpcBody) -> Result<(OpenReply, Streaming<OpenReply>), Status> {
    let mut stream = start(channel, path::OPEN, request).await?;
    Ok((first_message(&mut stream).await?, stream))
}
