import { expect, test } from 'vitest'
import { readExperts } from './routed-experts.ts'
import { scanReply } from './token-scanner.ts'

const base64 = (array: Uint8Array | Int16Array | Uint16Array | Int32Array | BigInt64Array): string =>
  Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString('base64')

/** As `numpy.save` writes it. */
function numpyFile(descr: string, shape: string, data: Uint8Array | Int16Array | Int32Array): string {
  const header = `{'descr': '${descr}', 'fortran_order': False, 'shape': ${shape}, }`.padEnd(117, ' ') + '\n'
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength)
  const head = Buffer.from([0x93, ...Buffer.from('NUMPY'), 1, 0, header.length, 0])
  return Buffer.concat([head, Buffer.from(header), bytes]).toString('base64')
}

const scanned = (value: unknown, place: (experts: unknown) => object = (experts) => ({ routed_experts: experts })) =>
  scanReply(Buffer.from(JSON.stringify({ choices: [place(value)] }))).tokens.routedExperts

const six = Uint8Array.of(1, 2, 3, 4, 5, 6)

test.each([
  ['a list', [[[1, 2, 3]], [[4, 5, 6]]], { shape: [2, 1, 3], experts: six }],
  ['an empty list', [], { shape: [0, 0, 0], experts: new Uint8Array() }],
  ['a list with larger numbers', [[[1, 300]]], { shape: [1, 1, 2], experts: Int16Array.of(1, 300) }],
  ['a list with negative ones', [[[7, -1]]], { shape: [1, 1, 2], experts: Int16Array.of(7, -1) }],
  ['a list with huge ones', [[[300, 70_000, 1]]], { shape: [1, 1, 3], experts: Int32Array.of(300, 70_000, 1) }],
  ['a NumPy file of bytes', numpyFile('|u1', '(2, 1, 3)', six), { shape: [2, 1, 3], experts: six }],
  ['a NumPy file of words', numpyFile('<i4', '(6,)', Int32Array.from(six)), { shape: [6], experts: six }],
  ['bare 32-bit numbers', base64(Int32Array.of(1, 2, 3, 4, 5, 6)), { shape: [6], experts: six }],
  ['bare numbers above 255', base64(Int32Array.of(256, -1)), { shape: [2], experts: Int16Array.of(256, -1) }],
  ['an object', { data: base64(six), shape: [1, 2, 3] }, { shape: [1, 2, 3], experts: six }],
  [
    'an object of int16',
    { data: base64(Int16Array.from(six)), shape: [6, 1, 1], dtype: 'int16' },
    { shape: [6, 1, 1], experts: six },
  ],
  [
    'an object of uint16',
    { data: base64(Uint16Array.of(40_000)), shape: [1], dtype: 'uint16' },
    { shape: [1], experts: Int32Array.of(40_000) },
  ],
  [
    'an object of int64',
    { data: base64(BigInt64Array.of(1n, 2n)), shape: [2], dtype: 'int64', start: 3 },
    { shape: [2], experts: Uint8Array.of(1, 2) },
  ],
])('%s', (_name, value, expected) => {
  expect(scanned(value)).toEqual(expected)
  expect(readExperts(value)).toEqual(expected)
})

test('routed experts are found in both places where SGLang writes them', () => {
  const value = base64(Int32Array.of(1, 2))
  for (const key of ['sgl_ext', 'meta_info']) {
    expect(scanned(value, (experts) => ({ [key]: { routed_experts: experts } }))?.experts).toEqual(Uint8Array.of(1, 2))
  }
})

test.each([
  ['rows of different lengths', [[[1, 2]], [[1]]]],
  ['too few levels', [[1, 2]]],
  ['too many levels', [[[[1]]]]],
  ['a fraction', [[[1.5]]]],
  ['a text among numbers', [[['1']]]],
  ['no base64', 'a?b!'],
  ['bytes that make no whole number', base64(Uint8Array.of(1, 2, 3))],
  ['a shape that does not fit', { data: base64(six), shape: [2, 2] }],
  ['a type nobody knows', { data: base64(six), shape: [6], dtype: 'float32' }],
  ['a type that every object has', { data: base64(six), shape: [6], dtype: 'constructor' }],
  ['a number that is too large', { data: base64(BigInt64Array.of(2n ** 40n)), shape: [1], dtype: 'int64' }],
  ['a NumPy file of something else', numpyFile('<f4', '(6,)', Int32Array.from(six))],
  ['nothing', null],
])('routed experts of the form %s stay in the document', (_name, value) => {
  expect(scanned(value)).toBeUndefined()
  expect(readExperts(value)).toBeUndefined()
})
