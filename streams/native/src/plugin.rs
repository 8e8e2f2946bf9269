//! How a consumer made by confluent-kafka is met: as a librdkafka plugin.
//!
//! A consumer whose settings name this library under `plugin.library.paths` calls `conf_init`;
//! the interceptors then tell when its client has been made and when it is destroyed. Both are
//! public interfaces of librdkafka, so nothing depends on how confluent-kafka is laid out.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use crate::librdkafka::{Client, Conf, api};

const NAME: &std::ffi::CStr = c"headrace-columns";
const FAILED: c_int = -196; // RD_KAFKA_RESP_ERR__FAIL

/// A client that lives until `gone` is told.
pub struct Met {
    pub client: *mut Client,
    /// What is to be given back before the client is destroyed; None afterwards.
    pub held: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

// SAFETY: librdkafka's functions may be called from any thread.
unsafe impl Send for Met {}
unsafe impl Sync for Met {}

thread_local! {
    static LAST: RefCell<Option<Arc<Met>>> = const { RefCell::new(None) };
}

/// The client that this thread has made last; each is given once.
pub fn claim() -> Option<Arc<Met>> {
    LAST.take()
}

/// Called by librdkafka when the library is named in a configuration.
///
/// # Safety
/// Only librdkafka may call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn conf_init(
    conf: *mut Conf,
    _opaque: *mut *mut c_void,
    _error: *mut c_char,
    _error_size: usize,
) -> c_int {
    match api() {
        // SAFETY: `conf` is librdkafka's own.
        Some(api) => unsafe { (api.add_on_new)(conf, NAME.as_ptr(), on_new, std::ptr::null_mut()) },
        None => FAILED,
    }
}

unsafe extern "C" fn on_new(
    client: *mut Client,
    _conf: *const Conf,
    _opaque: *mut c_void,
    _error: *mut c_char,
    _error_size: usize,
) -> c_int {
    let Some(api) = api() else { return FAILED };
    let met = Arc::new(Met { client, held: Mutex::new(None) });
    let opaque = Arc::into_raw(Arc::clone(&met)).cast_mut().cast();
    LAST.set(Some(met));
    // SAFETY: the client has just been made; `on_destroy` takes the reference back.
    unsafe { (api.add_on_destroy)(client, NAME.as_ptr(), on_destroy, opaque) }
}

unsafe extern "C" fn on_destroy(_client: *mut Client, opaque: *mut c_void) -> c_int {
    // SAFETY: made by `on_new`, and librdkafka calls this once.
    let met = unsafe { Arc::from_raw(opaque.cast_const().cast::<Met>()) };
    let held = met.held.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(give_back) = held {
        give_back();
    }
    0
}
