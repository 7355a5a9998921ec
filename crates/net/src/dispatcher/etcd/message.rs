//! The few messages of etcd's API that are used, with the numbers of its `rpc.proto` and `kv.proto`.
//!
//! Written by hand with a derive, like our own: a fresh machine has no compiler of `.proto` files. What is left out of a
//! message is what we never send, or skip when it comes.

use prost::{Message, Oneof};

pub(super) const RANGE: &str = "/etcdserverpb.KV/Range";
pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(super) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// 0 is equal, which is all we ask for.
    #[prost(int32, tag = "1")]
    pub(super) result: i32,
    /// 1 is the revision at which a key was made.
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    // A member of a oneof: it is sent although it is zero, which means that there is no such key.
    #[prost(oneof = "CompareWith", tags = "5")]
    pub(super) with: Option<CompareWith>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum CompareWith {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
}

pub(super) const TARGET_CREATE: i32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "RequestKind", tags = "1, 2, 3")]
    pub(super) request: Option<RequestKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum RequestKind {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    /// What a range found; of puts and deletions nothing is read.
    #[prost(message, optional, tag = "1")]
    pub(super) range: Option<RangeResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
    #[prost(string, tag = "4")]
    pub(super) error: String,
}

/// Of renewing and of revoking alike.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_with_zero_is_on_the_wire() {
        let with = Some(CompareWith::CreateRevision(0));
        let compare = Compare { result: 0, target: TARGET_CREATE, key: b"k".to_vec(), with };
        // target (2): 1, key (3): "k", create_revision (5): 0. Left out, etcd would compare with nothing.
        assert_eq!(compare.encode_to_vec(), [0x10, 1, 0x1a, 1, b'k', 0x28, 0]);
    }

    #[test]
    fn what_etcd_adds_to_a_message_is_skipped() {
        // A pair as etcd writes it: key, create revision, mod revision, version, value, lease.
        let bytes = [10, 1, b'k', 16, 7, 24, 9, 32, 2, 42, 1, b'v', 48, 5];
        let pair = KeyValue::decode(bytes.as_slice()).unwrap();
        assert_eq!((pair.key, pair.value), (b"k".to_vec(), b"v".to_vec()));
        assert_eq!((pair.create_revision, pair.lease), (7, 5));
    }
}
