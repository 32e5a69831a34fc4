import { isJsonObject, type RoutedExperts } from '../../schema/index.ts'

type Experts = RoutedExperts['experts']

/**
 * Reads routed experts from a document: a list, `[tokens][layers][experts]`, or one of the forms in base64. These are the file that NumPy writes
 * (vLLM), bare 32-bit numbers without a shape (SGLang), or an object of `data`, `shape` and `dtype` (gateways and forks of
 * vLLM, which mean bytes if they give no `dtype`). Undefined for anything else.
 */
export function readExperts(value: unknown): RoutedExperts | undefined {
  if (typeof value === 'string') {
    const bytes = base64Bytes(value)
    return bytes && (isNumpyFile(bytes) ? readNumpy(bytes) : numbersOf(bytes, 'i4', undefined))
  }
  if (Array.isArray(value)) return readList(value)
  if (!isJsonObject(value)) return undefined
  const { data, shape, dtype = 'uint8' } = value as { data?: unknown; shape?: unknown; dtype?: unknown }
  if (typeof data !== 'string' || typeof dtype !== 'string' || !isShape(shape)) return undefined
  const bytes = base64Bytes(data)
  return bytes && numbersOf(bytes, typeOfDtype.get(dtype) ?? dtype, shape)
}

/** Reads the list form. Undefined if its rows differ in length, or hold anything but whole numbers of 32 bits. */
function readList(tokens: readonly unknown[]): RoutedExperts | undefined {
  const layers = flattened(tokens)
  const experts = layers && flattened(layers.values)
  if (!layers || !experts?.values.every(isInt32)) return undefined
  return { shape: [tokens.length, layers.size, experts.size], experts: narrowed(Int32Array.from(experts.values)) }
}

function flattened(lists: readonly unknown[]): { readonly values: unknown[]; readonly size: number } | undefined {
  const [first] = lists
  const size = Array.isArray(first) ? first.length : 0
  if (!lists.every((list) => Array.isArray(list) && list.length === size)) return undefined
  return { values: lists.flat(), size }
}

function isInt32(value: unknown): value is number {
  return typeof value === 'number' && (value | 0) === value
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

/** A NumPy file: magic, version, length of the header, and the header, a Python dictionary with type, order and shape. */
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
      if (!wide.every((value) => BigInt.asIntN(32, value) === value)) return undefined
      return narrowed(Int32Array.from(wide, Number))
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
