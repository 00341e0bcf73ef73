//! `proto/blockstore.proto` against the hand-written messages, read by an independent compiler.

use crate::messages::{DATA, Done, FlushRequest, OpenReply, OpenRequest, RangeRequest, ReadReply, ReadRequest, WriteRequest, path};
use bytes::Bytes;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use std::path::Path;

fn pool() -> DescriptorPool {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    DescriptorPool::from_file_descriptor_set(protox::compile(["blockstore.proto"], [dir]).unwrap()).unwrap()
}

/// `message` has a value in each field: decoded by the description, no field is unknown or missing.
fn same<M: Message + Default + PartialEq + std::fmt::Debug>(pool: &DescriptorPool, name: &str, message: M) {
    let descriptor = pool.get_message_by_name(&format!("uringlet.blockstore.v1.{name}")).unwrap();
    let read = DynamicMessage::decode(descriptor.clone(), &message.encode_to_vec()[..]).unwrap();
    assert_eq!(read.unknown_fields().count(), 0, "{name} has a field too many");
    for field in descriptor.fields() {
        assert!(read.has_field(&field), "{}.{} is missing, or of another type", name, field.name());
        assert!(field.name() != "data" || field.number() == DATA);
    }
    assert_eq!(M::decode(&read.encode_to_vec()[..]).unwrap(), message);
}

#[test]
fn messages_match_the_proto_file() {
    let pool = pool();
    let (session, offset, data) = (u64::MAX - 1, 1 << 40, Bytes::from_static(b"data"));
    same(&pool, "OpenRequest", OpenRequest { owner: data.clone(), takeover: true, resume: true, volume_hash: 1 << 63 | 5 });
    let opened = OpenReply { session, size: 1 << 50, volume: "name".to_owned(), read_only: true, volatile_cache: true };
    same(&pool, "OpenReply", opened);
    same(&pool, "ReadRequest", ReadRequest { session, offset, length: u32::MAX });
    same(&pool, "ReadReply", ReadReply { data: data.clone() });
    same(&pool, "WriteRequest", WriteRequest { session, offset, fua: true, data });
    same(&pool, "FlushRequest", FlushRequest { session });
    same(&pool, "RangeRequest", RangeRequest { session, offset, length: u64::MAX, may_unmap: true });
    same(&pool, "Done", Done {});
    assert_eq!(pool.all_messages().count(), 8);
}

#[test]
fn methods_match_the_proto_file() {
    let pool = pool();
    let service = pool.get_service_by_name("uringlet.blockstore.v1.BlockStore").unwrap();
    let described: Vec<_> = service
        .methods()
        .map(|method| {
            let (input, output) = (method.input().name().to_owned(), method.output().name().to_owned());
            assert_eq!((method.is_client_streaming(), method.is_server_streaming()), (false, method.name() == "Open"));
            (format!("/{}/{}", service.full_name(), method.name()), input, output)
        })
        .collect();
    let ours = [
        (path::OPEN, "OpenRequest", "OpenReply"),
        (path::READ, "ReadRequest", "ReadReply"),
        (path::WRITE, "WriteRequest", "Done"),
        (path::FLUSH, "FlushRequest", "Done"),
        (path::DISCARD, "RangeRequest", "Done"),
        (path::WRITE_ZEROES, "RangeRequest", "Done"),
    ];
    assert_eq!(described, ours.map(|(path, input, output)| (path.to_owned(), input.to_owned(), output.to_owned())));
}
