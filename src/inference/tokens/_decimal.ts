const plus = 0x2b
const minus = 0x2d
const point = 0x2e
const zero = 0x30

/** Numbers with more significant digits than this are left to `Number`. */
const maxDigits = 18
const maxPower = 38
const powers = Float64Array.from({ length: maxPower + 1 }, (_, power) => Number(`1e${power}`))

/** The largest relative error of a value computed here: three roundings, and a power that may be rounded too. */
const doubt = 2 ** -48
/** Smaller values come near the subnormal 32-bit floats, whose relative distance is larger. */
const smallest = 2 ** -120

/**
 * A JSON number, read from its digits as a 32-bit float: exactly `Math.fround(Number(text))`, mostly without making a text.
 * The value is first computed in doubles, with a small error. If all values within that error round to one float, that float
 * is the result. Numbers that are too close to call, or have too many digits, go through `Number`.
 */
export class Decimal {
  value = 0

  /** Sets `value`. Returns the place after the number, or -1 if there is none that JSON allows. */
  read(bytes: Uint8Array, start: number): number {
    const { length } = bytes
    const isNegative = bytes[start] === minus
    const first = isNegative ? start + 1 : start
    /** The first nine significant digits, and the digits after them: both are exact. */
    let high = 0
    let low = 0
    let digits = 0
    let pointAt = -1
    let at = first
    for (; at < length; at += 1) {
      const byte = bytes[at] as number
      const digit = byte - zero
      if (digit >= 0 && digit <= 9) {
        // Leading zeros are not significant.
        if (digits === 0 && digit === 0) continue
        if (digits < 9) high = high * 10 + digit
        else low = low * 10 + digit
        digits += 1
      } else if (byte === point && pointAt === -1) {
        pointAt = at
      } else {
        break
      }
    }
    const wholeDigits = (pointAt === -1 ? at : pointAt) - first
    if (wholeDigits === 0 || (wholeDigits > 1 && bytes[first] === zero) || pointAt === at - 1) return -1
    let exponent = pointAt === -1 ? 0 : pointAt + 1 - at
    if (at < length && ((bytes[at] as number) | 0x20) === 0x65) {
      const sign = bytes[at + 1]
      const powerAt = sign === plus || sign === minus ? at + 2 : at + 1
      let power = 0
      for (at = powerAt; at < length; at += 1) {
        const digit = (bytes[at] as number) - zero
        if (digit < 0 || digit > 9) break
        // Larger powers need not be exact: they are out of range anyway.
        if (power < 1_000) power = power * 10 + digit
      }
      if (at === powerAt) return -1
      exponent += sign === minus ? -power : power
    }
    const value = nearly(high, low, digits, exponent)
    const float = Math.fround(value * (1 - doubt))
    const isCertain = value === 0 || (value > smallest && float === Math.fround(value * (1 + doubt)))
    if (isCertain) this.value = isNegative ? -float : float
    else this.value = Math.fround(numberOf(bytes, start, at))
    return at
  }
}

/** The value with a small error; NaN if the error could be larger than `doubt`. */
function nearly(high: number, low: number, digits: number, exponent: number): number {
  if (digits > maxDigits || exponent < -maxPower || exponent > maxPower) return Number.NaN
  const mantissa = digits > 9 ? high * (powers[digits - 9] as number) + low : high
  return exponent < 0 ? mantissa / (powers[-exponent] as number) : mantissa * (powers[exponent] as number)
}

function numberOf(bytes: Uint8Array, start: number, end: number): number {
  return Number(Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start).toString('latin1'))
}
