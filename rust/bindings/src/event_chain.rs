//! Bindings of the event log's hash chain: reads Python events, writes them as canonical JSON.

use std::collections::HashMap;

use latchboard_engine::event_chain::{
    EventHash, EventHashInput, compare_names, is_exact, link, parse_hash, write_double, write_hex, write_integer, write_string,
};
use pyo3::exceptions::{PyRecursionError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};

/// Data nested deeper is an error, as it is in Python; the stack has room for much more.
const MAX_DEPTH: usize = 500;
const NO_HASH: EventHash = [0; 32];

type Place<'py> = (i64, Bound<'py, PyString>);

/// (sequence, hash) of each event, in the order of the events. `heads`: sequence and hash of the last record, by account.
#[pyfunction]
pub fn chain_events<'py>(
    py: Python<'py>,
    events: Vec<Bound<'py, PyAny>>,
    heads: HashMap<String, (i64, String)>,
) -> PyResult<Vec<Place<'py>>> {
    let mut chains = parse_heads(heads)?;
    let mut json = Vec::with_capacity(1024);
    let mut places = Vec::with_capacity(events.len());
    for event in &events {
        let account = event.getattr(intern!(py, "account_id"))?;
        let account = text_of(&account)?;
        if !chains.contains_key(account) {
            chains.insert(account.to_owned(), (0, NO_HASH));
        }
        let Some((sequence, hash)) = chains.get_mut(account) else {
            continue;
        };
        *sequence += 1;
        json.clear();
        write_record(event, account, *sequence, &mut json)?;
        *hash = link(hash, &json);
        places.push((*sequence, hex_text(py, hash)?));
    }
    Ok(places)
}

fn parse_heads(heads: HashMap<String, (i64, String)>) -> PyResult<HashMap<String, (i64, EventHash)>> {
    let parse = |(account, (sequence, hash)): (String, (i64, String))| {
        let hash = parse_hash(&hash).ok_or_else(|| PyValueError::new_err("a hash is 64 hexadecimal digits"))?;
        Ok((account, (sequence, hash)))
    };
    heads.into_iter().map(parse).collect()
}

fn hex_text<'py>(py: Python<'py>, hash: &EventHash) -> PyResult<Bound<'py, PyString>> {
    let mut digits = [0; 64];
    write_hex(hash, &mut digits);
    PyString::from_bytes(py, &digits)
}

fn write_record(event: &Bound<'_, PyAny>, account_id: &str, sequence: i64, out: &mut Vec<u8>) -> PyResult<()> {
    let py = event.py();
    let device_id = event.getattr(intern!(py, "device_id"))?;
    let device_name = event.getattr(intern!(py, "device_name"))?;
    let address = event.getattr(intern!(py, "address"))?;
    let description = event.getattr(intern!(py, "description"))?;
    let kind = event.getattr(intern!(py, "kind"))?;
    let event_id = event.getattr(intern!(py, "event_id"))?;
    let source = event.getattr(intern!(py, "source"))?;
    let record = EventHashInput {
        account_id,
        address: text_of(&address)?,
        description: text_of(&description)?,
        device_id: text_or_empty(&device_id)?,
        device_name: text_or_empty(&device_name)?,
        kind: text_of(&kind)?,
        event_id: text_of(&event_id)?,
        position: event.getattr(intern!(py, "position"))?.extract()?,
        sequence,
        source: text_of(&source)?,
        at_ms: event.getattr(intern!(py, "at_ms"))?.extract()?,
        writer: event.getattr(intern!(py, "writer"))?.extract()?,
    };
    let data = event.getattr(intern!(py, "payload"))?;
    record.write(out, |out| write_value(&data, 0, out))
}

fn text_of<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    value.cast::<PyString>()?.to_str()
}

fn text_or_empty<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    if value.is_none() { Ok("") } else { text_of(value) }
}

fn write_value(value: &Bound<'_, PyAny>, depth: usize, out: &mut Vec<u8>) -> PyResult<()> {
    if let Ok(text) = value.cast::<PyString>() {
        write_string(out, text.to_str()?);
    } else if let Ok(flag) = value.cast::<PyBool>() {
        out.extend_from_slice(if flag.is_true() { b"true" } else { b"false" });
    } else if value.is_instance_of::<PyInt>() {
        write_int(value, out)?;
    } else if value.is_none() {
        out.extend_from_slice(b"null");
    } else if let Ok(number) = value.cast::<PyFloat>() {
        write_double(out, number.value());
    } else {
        return write_container(value, depth + 1, out);
    }
    Ok(())
}

fn write_int(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    match value.extract::<i64>() {
        Ok(number) if is_exact(number) => write_integer(out, number),
        _ => write_double(out, value.extract()?),
    }
    Ok(())
}

fn write_container(value: &Bound<'_, PyAny>, depth: usize, out: &mut Vec<u8>) -> PyResult<()> {
    if depth > MAX_DEPTH {
        return Err(PyRecursionError::new_err("the data of the event is nested too deeply"));
    }
    if let Ok(object) = value.cast::<PyDict>() {
        write_object(object.iter().collect(), depth, out)
    } else if let Ok(list) = value.cast::<PyList>() {
        write_array(list.iter(), depth, out)
    } else if let Ok(list) = value.cast::<PyTuple>() {
        write_array(list.iter(), depth, out)
    } else if let Ok(object) = value.cast::<PyMapping>() {
        let items = object.items()?;
        write_object(items.iter().map(|item| item.extract()).collect::<PyResult<_>>()?, depth, out)
    } else {
        let name = value.get_type().name()?;
        Err(PyTypeError::new_err(format!("{name} is not JSON")))
    }
}

type Item<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

fn write_object(items: Vec<Item<'_>>, depth: usize, out: &mut Vec<u8>) -> PyResult<()> {
    let named = items.iter().map(|(name, value)| Ok((text_of(name)?, value)));
    let mut members = named.collect::<PyResult<Vec<_>>>()?;
    members.sort_unstable_by(|one, other| compare_names(one.0, other.0));
    out.push(b'{');
    for (at, (name, value)) in members.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, name);
        out.push(b':');
        write_value(value, depth, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_array<'py>(values: impl Iterator<Item = Bound<'py, PyAny>>, depth: usize, out: &mut Vec<u8>) -> PyResult<()> {
    out.push(b'[');
    for (at, value) in values.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_value(&value, depth, out)?;
    }
    out.push(b']');
    Ok(())
}
