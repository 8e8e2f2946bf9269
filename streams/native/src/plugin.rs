//! How a client made by confluent-kafka is met: as a librdkafka plugin.
//!
//! A consumer or producer whose settings name this library under `plugin.library.paths` calls
//! `conf_init`; the interceptors then tell when its client has been made, what became of a record
//! that it sent, and when it is destroyed. All are public interfaces of librdkafka, so nothing
//! depends on how confluent-kafka is laid out.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::librdkafka::{Client, Conf, Message, api};

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

/// What became of the records of one producer that were not delivered.
#[derive(Default)]
pub struct Losses {
    /// Error code of the first one since it was asked for.
    first: Mutex<Option<c_int>>,
}

impl Losses {
    /// Error code of the first loss since the last call.
    pub fn take(&self) -> Option<c_int> {
        locked(&self.first).take()
    }
}

/// The producers that are watched, by client. A loss may be told after `on_destroy`, when nothing
/// that an opaque pointer leads to is there any more: so it is looked up here.
static WATCHED: Mutex<Vec<(usize, Arc<Losses>)>> = Mutex::new(Vec::new());

/// Collects the losses of a client from here on.
pub fn watch(met: &Met) -> Arc<Losses> {
    let losses = Arc::default();
    locked(&WATCHED).push((met.client as usize, Arc::clone(&losses)));
    losses
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
    unsafe {
        let nothing = std::ptr::null_mut();
        match (api.add_on_acknowledgement)(client, NAME.as_ptr(), on_acknowledgement, nothing) {
            0 => (api.add_on_destroy)(client, NAME.as_ptr(), on_destroy, opaque),
            failed => failed,
        }
    }
}

/// A record of a producer is in the log, or is not and will not be sent any more.
unsafe extern "C" fn on_acknowledgement(
    client: *mut Client,
    message: *mut Message,
    _opaque: *mut c_void,
) -> c_int {
    // SAFETY: the message is alive during the call.
    let code = unsafe { (*message).err };
    if code != 0 {
        let watched = locked(&WATCHED);
        if let Some((_, losses)) = watched.iter().find(|(at, _)| *at == client as usize) {
            locked(&losses.first).get_or_insert(code);
        }
    }
    0
}

unsafe extern "C" fn on_destroy(client: *mut Client, opaque: *mut c_void) -> c_int {
    locked(&WATCHED).retain(|(at, _)| *at != client as usize);
    // SAFETY: made by `on_new`, and librdkafka calls this once.
    let met = unsafe { Arc::from_raw(opaque.cast_const().cast::<Met>()) };
    let held = locked(&met.held).take();
    if let Some(give_back) = held {
        give_back();
    }
    0
}
