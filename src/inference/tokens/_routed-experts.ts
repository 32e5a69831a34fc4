import type { RoutedExperts } from '../../schema/index.ts'
import { isObject } from '../wire/foreign-json.ts'
import { closeBracket, comma, openBracket } from '../../kit/index.ts'

type Experts = RoutedExperts['experts']

/**
 * Reads the list form, `[tokens][layers][experts]`, from JSON that is known to be well formed. Undefined if the list holds
 * anything but whole numbers of 32 bits in plain digits, or if its rows differ in length.
 */
export function scanExperts(bytes: Uint8Array, start: number): RoutedExperts | undefined {
  const list = new ExpertList()
  /** The length of the lists at each level; -1 until the first list of a level has ended. */
  const shape = [-1, -1, -1]
  const counts = [0, 0, 0]
  let depth = -1
  for (let at = start; ; at += 1) {
    const byte = bytes[at]
    if (byte === openBracket) {
      if (depth === 2) return undefined
      if (depth >= 0) counts[depth] = (counts[depth] as number) + 1
      depth += 1
      counts[depth] = 0
    } else if (byte === closeBracket) {
      if (shape[depth] === -1) shape[depth] = counts[depth] as number
      else if (shape[depth] !== counts[depth]) return undefined
      depth -= 1
      if (depth === -1) return { shape: shape.map((size) => Math.max(size, 0)), experts: list.whole() }
    } else if (byte !== comma && byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) {
      const end = depth === 2 ? list.read(bytes, at) : -1
      if (end === -1) return undefined
      counts[2] = (counts[2] as number) + 1
      at = end - 1
    }
  }
}

/**
 * Reads routed experts from a document: a list as above, or one of the forms in base64. These are the file that NumPy writes
 * (vLLM), bare 32-bit numbers without a shape (SGLang), or an object of `data`, `shape` and `dtype` (gateways and forks of
 * vLLM, which mean bytes if they give no `dtype`). Undefined for anything else.
 */
export function readExperts(value: unknown): RoutedExperts | undefined {
  if (typeof value === 'string') {
    const bytes = base64Bytes(value)
    return bytes && (isNumpyFile(bytes) ? readNumpy(bytes) : numbersOf(bytes, 'i4', undefined))
  }
  // A list that was left in the document is a short one.
  if (Array.isArray(value)) return scanExperts(Buffer.from(JSON.stringify(value)), 0)
  if (!isObject(value)) return undefined
  const { data, shape, dtype = 'uint8' } = value as { data?: unknown; shape?: unknown; dtype?: unknown }
  if (typeof data !== 'string' || typeof dtype !== 'string' || !isShape(shape)) return undefined
  const bytes = base64Bytes(data)
  return bytes && numbersOf(bytes, typeOfDtype.get(dtype) ?? dtype, shape)
}

// A map and no object: the server chooses the name, and objects inherit names of their own.
const typeOfDtype: ReadonlyMap<string, string> = new Map([
  ['uint8', 'u1'],
  ['int16', 'i2'],
  ['uint16', 'u2'],
  ['int32', 'i4'],
  ['int64', 'i8'],
])

/** Decodes base64. Node's decoder skips invalid characters; then fewer bytes come out than the length promises. */
function base64Bytes(text: string): Uint8Array | undefined {
  const unpadded = text.endsWith('==') ? text.length - 2 : text.endsWith('=') ? text.length - 1 : text.length
  const bytes = Buffer.from(text, 'base64')
  return bytes.length === Math.floor((unpadded * 3) / 4) ? bytes : undefined
}

const numpyMagic = Buffer.from('\u0093NUMPY', 'latin1')

function isNumpyFile(bytes: Uint8Array): boolean {
  return bytes.length > 12 && numpyMagic.equals(bytes.subarray(0, numpyMagic.length))
}

/**
 * Reads a NumPy file: magic, version, the length of a header, and the header, a Python dictionary with type, order and
 * shape.
 */
function readNumpy(bytes: Uint8Array): RoutedExperts | undefined {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const isFirstVersion = bytes[6] === 1
  const headerStart = isFirstVersion ? 10 : 12
  const headerEnd = headerStart + (isFirstVersion ? view.getUint16(8, true) : view.getUint32(8, true))
  const header = Buffer.from(bytes.subarray(headerStart, headerEnd)).toString('latin1')
  const descr = /'descr': *'[<|]([a-z]\d)'/.exec(header)?.[1]
  const sizes = /'shape': *\(([\d, ]*)\)/.exec(header)?.[1]
  if (descr === undefined || sizes === undefined || !/'fortran_order': *False/.test(header)) return undefined
  const shape = sizes
    .split(',')
    .filter((size) => size.trim() !== '')
    .map(Number)
  return numbersOf(bytes.subarray(headerEnd), descr, shape)
}

function isShape(shape: unknown): shape is readonly number[] {
  return Array.isArray(shape) && shape.every((size) => Number.isInteger(size) && size >= 0)
}

/** The bytes as numbers. They are little-endian, as on every machine that serves models. */
function numbersOf(bytes: Uint8Array, type: string, shape: readonly number[] | undefined): RoutedExperts | undefined {
  const width = Number(type.slice(1))
  const count = bytes.length / width
  if (!Number.isInteger(count)) return undefined
  if (shape && shape.reduce((product, size) => product * size, 1) !== count) return undefined
  // Copied, because a typed array must start at a multiple of its width.
  const { buffer } = new Uint8Array(bytes)
  const experts = expertsOf(buffer, type)
  return experts && { shape: shape ? [...shape] : [count], experts }
}

function expertsOf(buffer: ArrayBuffer, type: string): Experts | undefined {
  switch (type) {
    case 'u1':
      return new Uint8Array(buffer)
    case 'i2':
      return narrowed(new Int16Array(buffer))
    case 'u2':
      return narrowed(Int32Array.from(new Uint16Array(buffer)))
    case 'i4':
      return narrowed(new Int32Array(buffer))
    case 'i8': {
      const wide = new BigInt64Array(buffer)
      const values = new Int32Array(wide.length)
      for (let index = 0; index < wide.length; index += 1) {
        const value = Number(wide[index])
        if ((value | 0) !== value) return undefined
        values[index] = value
      }
      return narrowed(values)
    }
    default:
      return undefined
  }
}

function narrowed(values: Int16Array<ArrayBuffer> | Int32Array<ArrayBuffer>): Experts {
  let lowest = 0
  let highest = 0
  for (const value of values) {
    if (value < lowest) lowest = value
    if (value > highest) highest = value
  }
  if (lowest === 0 && highest <= 0xff) return Uint8Array.from(values)
  return lowest >= -0x8000 && highest <= 0x7fff ? Int16Array.from(values) : values
}

/** A list that grows, and takes a wider type when a number needs it: most models have fewer than 257 experts. */
class ExpertList {
  #values: Experts = new Uint8Array(1024)
  #length = 0
  #lowest = 0
  #highest = 0xff

  /** Reads the number that begins at `start`. Returns the place after it, or -1 if there is none. */
  read(bytes: Uint8Array, start: number): number {
    const isNegative = bytes[start] === 0x2d
    const first = isNegative ? start + 1 : start
    let at = first
    let expert = 0
    let byte = bytes[at] as number
    while (byte >= 0x30 && byte <= 0x39) {
      expert = expert * 10 + (byte - 0x30)
      at += 1
      byte = bytes[at] as number
    }
    const isPlain = at > first && expert <= 0x7fff_ffff && byte !== 0x2e && (byte | 0x20) !== 0x65
    if (!isPlain) return -1
    this.#push(isNegative ? -expert : expert)
    return at
  }

  #push(expert: number): void {
    if (expert > this.#highest || expert < this.#lowest) this.#widen(expert)
    if (this.#length === this.#values.length) this.#move(2 * this.#length)
    this.#values[this.#length] = expert
    this.#length += 1
  }

  whole(): Experts {
    return this.#values.slice(0, this.#length)
  }

  #widen(expert: number): void {
    const isShort = expert >= -0x8000 && expert <= 0x7fff && this.#highest <= 0x7fff
    this.#lowest = isShort ? -0x8000 : -0x8000_0000
    this.#highest = isShort ? 0x7fff : 0x7fff_ffff
    this.#values = isShort ? Int16Array.from(this.#values) : Int32Array.from(this.#values)
  }

  #move(capacity: number): void {
    const before = this.#values
    this.#values =
      before instanceof Uint8Array
        ? new Uint8Array(capacity)
        : before instanceof Int16Array
          ? new Int16Array(capacity)
          : new Int32Array(capacity)
    this.#values.set(before)
  }
}
