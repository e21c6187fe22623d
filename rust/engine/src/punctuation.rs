//! What stands between names and values: blanks, braces, commas. Everything says where it ends; None where it is not what was asked for.

/// Where the members of `"<letter>": {…}` begin, if that is what begins at `at`.
#[inline]
pub fn opened(payload: &[u8], at: usize, letter: u8) -> Option<usize> {
    if payload.get(at..at + 3)? != [b'"', letter, b'"'] {
        return None;
    }
    let colon = expect(payload, at + 3, b':')?;
    expect(payload, colon, b'{')
}

/// What follows a member: the next one's place, or that of what comes after the object.
pub struct End {
    pub at: usize,
    pub closed: bool,
}

#[inline(always)]
pub fn ends(payload: &[u8], at: usize) -> Option<End> {
    let at = skip_space(payload, at);
    let byte = *payload.get(at)?;
    let closed = byte == b'}';
    (closed || byte == b',').then_some(End { at: at + 1, closed })
}

#[inline]
pub fn expect(payload: &[u8], at: usize, byte: u8) -> Option<usize> {
    let at = skip_space(payload, at);
    (payload.get(at) == Some(&byte)).then_some(at + 1)
}

/// Mostly there is no blank, or one.
#[inline(always)]
pub fn skip_space(payload: &[u8], at: usize) -> usize {
    let at = at + usize::from(payload.get(at) == Some(&b' '));
    match payload.get(at) {
        Some(byte) if *byte > b' ' => at,
        _ => skip_more(payload, at),
    }
}

#[cold]
fn skip_more(payload: &[u8], at: usize) -> usize {
    let rest = payload.get(at..).unwrap_or_default();
    let blank = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    at + rest.iter().take_while(|byte| blank(byte)).count()
}
