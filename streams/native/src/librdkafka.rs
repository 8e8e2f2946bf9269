//! The few functions of librdkafka that are needed, taken from the copy that confluent-kafka has
//! already loaded: one client library in the process, with all its features.
//!
//! Types and signatures are those of `rdkafka.h`, which keeps them stable within version 2.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

use libloading::Library;

/// `rd_kafka_message_t`.
#[repr(C)]
pub struct Message {
    pub err: c_int,
    pub topic: *mut c_void,
    pub partition: i32,
    pub payload: *const u8,
    pub len: usize,
    pub key: *const u8,
    pub key_len: usize,
    pub offset: i64,
    private: *mut c_void,
}

/// `rd_kafka_t`.
#[repr(C)]
pub struct Client {
    _opaque: [u8; 0],
}

/// `rd_kafka_queue_t`.
#[repr(C)]
pub struct Queue {
    _opaque: [u8; 0],
}

/// `rd_kafka_topic_t`.
#[repr(C)]
pub struct Topic {
    _opaque: [u8; 0],
}

/// `rd_kafka_error_t`.
#[repr(C)]
pub struct Error {
    _opaque: [u8; 0],
}

/// `rd_kafka_conf_t`.
#[repr(C)]
pub struct Conf {
    _opaque: [u8; 0],
}

/// `rd_kafka_vu_t`: one part of a record to be sent; `kind` says which member counts.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Part {
    pub kind: PartKind,
    pub value: PartValue,
}

/// `rd_kafka_vtype_t`, as far as it is used.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum PartKind {
    Topic = 2,
    Partition = 3,
    Value = 4,
    Key = 5,
    Flags = 7,
    Header = 9,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union PartValue {
    pub topic: *mut Topic,
    pub partition: i32,
    pub flags: c_int,
    pub bytes: Bytes,
    pub header: Header,
    room: [u64; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    pub at: *const u8,
    pub size: usize,
}

/// A header's name, zero-terminated, and its value; null for none.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Header {
    pub name: *const c_char,
    pub value: *const u8,
    pub size: isize,
}

/// `RD_KAFKA_MSG_F_COPY`: key and value are copied before the call is over.
pub const COPY: c_int = 0x2;

const _: () = assert!(size_of::<Part>() == 72);

pub type OnNew =
    unsafe extern "C" fn(*mut Client, *const Conf, *mut c_void, *mut c_char, usize) -> c_int;
pub type OnDestroy = unsafe extern "C" fn(*mut Client, *mut c_void) -> c_int;
pub type OnAcknowledgement = unsafe extern "C" fn(*mut Client, *mut Message, *mut c_void) -> c_int;
pub type OnEvent = unsafe extern "C" fn(*mut Client, *mut c_void);

macro_rules! api {
    ($($name:ident = $symbol:literal: fn($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// The loaded functions.
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
        }

        impl Api {
            /// # Safety
            /// The library must be librdkafka, and must stay loaded.
            unsafe fn of(library: &Library) -> Result<Self, libloading::Error> {
                // SAFETY: the signatures are those of rdkafka.h.
                unsafe { Ok(Self { $($name: *library.get($symbol)?,)* }) }
            }
        }
    };
}

api! {
    add_on_new = c"rd_kafka_conf_interceptor_add_on_new":
        fn(*mut Conf, *const c_char, OnNew, *mut c_void) -> c_int;
    add_on_destroy = c"rd_kafka_interceptor_add_on_destroy":
        fn(*mut Client, *const c_char, OnDestroy, *mut c_void) -> c_int;
    add_on_acknowledgement = c"rd_kafka_interceptor_add_on_acknowledgement":
        fn(*mut Client, *const c_char, OnAcknowledgement, *mut c_void) -> c_int;
    new_topic = c"rd_kafka_topic_new": fn(*mut Client, *const c_char, *mut c_void) -> *mut Topic;
    destroy_topic = c"rd_kafka_topic_destroy": fn(*mut Topic);
    produce = c"rd_kafka_produceva": fn(*mut Client, *const Part, usize) -> *mut Error;
    error_code = c"rd_kafka_error_code": fn(*const Error) -> c_int;
    destroy_error = c"rd_kafka_error_destroy": fn(*mut Error);
    consumer_queue = c"rd_kafka_queue_get_consumer": fn(*mut Client) -> *mut Queue;
    partition_queue = c"rd_kafka_queue_get_partition":
        fn(*mut Client, *const c_char, i32) -> *mut Queue;
    forward = c"rd_kafka_queue_forward": fn(*mut Queue, *mut Queue);
    on_event = c"rd_kafka_queue_cb_event_enable":
        fn(*mut Queue, Option<OnEvent>, *mut c_void);
    destroy_queue = c"rd_kafka_queue_destroy": fn(*mut Queue);
    consume = c"rd_kafka_consume_batch_queue":
        fn(*mut Queue, c_int, *mut *mut Message, usize) -> isize;
    timestamp = c"rd_kafka_message_timestamp": fn(*const Message, *mut c_int) -> i64;
    headers = c"rd_kafka_message_headers": fn(*const Message, *mut *mut c_void) -> c_int;
    header = c"rd_kafka_header_get_all":
        fn(*const c_void, usize, *mut *const c_char, *mut *const c_void, *mut usize) -> c_int;
    version = c"rd_kafka_version": fn() -> c_int;
    error_text = c"rd_kafka_err2str": fn(c_int) -> *const c_char;
    destroy_message = c"rd_kafka_message_destroy": fn(*mut Message);
}

static API: OnceLock<Api> = OnceLock::new();

/// Finds the functions in a loaded module that is linked with librdkafka; safe to repeat.
pub fn load(module: &Path) -> Result<(), libloading::Error> {
    if API.get().is_none() {
        // SAFETY: confluent-kafka's module is loaded already; nothing new is initialised.
        let library = unsafe { Library::new(module)? };
        // SAFETY: it is linked with librdkafka, and is never unloaded.
        let api = unsafe { Api::of(&library)? };
        std::mem::forget(library);
        let _ = API.set(api);
    }
    Ok(())
}

/// The functions; None before `load`.
pub fn api() -> Option<&'static Api> {
    API.get()
}

/// Versions in which a message is followed by what `headerless` looks at.
const KNOWN: [c_int; 1] = [0x0210_00ff];

/// `rd_kafka_msg_t` as far as the length of the undecoded headers.
#[repr(C)]
struct Inside {
    message: Message,
    link: [*mut c_void; 2],
    flags: c_int,
    stamp_kind: c_int,
    stamp: i64,
    headers: *mut c_void,
    status: c_int,
    encoded: Encoded,
}

/// `rd_kafkap_bytes_t`, which the pointer aligns to eight bytes.
#[repr(C)]
struct Encoded {
    size: i32,
    bytes: *const u8,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(std::mem::offset_of!(Inside, encoded) == 120);

/// Says quickly of most records without headers that they have none.
///
/// Asking librdkafka makes it allocate and parse a list for every record, empty or not: a third of
/// all time spent reading. So in versions known to us one private number is looked at: headers of
/// one byte are the count 0. In any other version, and for any other number, librdkafka is asked.
#[derive(Clone, Copy)]
pub struct Peek {
    known: bool,
}

impl Peek {
    pub fn of(api: &Api) -> Self {
        // SAFETY: takes nothing and changes nothing.
        let version = unsafe { (api.version)() };
        Self { known: cfg!(target_pointer_width = "64") && KNOWN.contains(&version) }
    }

    /// Whether it works with this librdkafka.
    pub fn known(self) -> bool {
        self.known
    }

    /// Whether the message certainly has no headers.
    ///
    /// # Safety
    /// The message must be one that librdkafka has given.
    #[inline]
    pub unsafe fn headerless(self, message: *const Message) -> bool {
        // SAFETY: in these versions the message is the first field of `Inside`.
        self.known && unsafe { (*message.cast::<Inside>()).encoded.size } == 1
    }
}
