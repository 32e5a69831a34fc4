import { expect, test } from 'vitest'
import type { Json } from '../../../schema/index.ts'
import { rpcErrorOf } from './_rpc-error.ts'

const written: [Json, ReturnType<typeof rpcErrorOf>][] = [
  [
    { code: -32_602, message: 'bad' },
    { code: -32_602, message: 'bad' },
  ],
  [{ message: 'no code' }, { code: -32_603, message: 'no code' }],
  [
    { code: -32_000, message: { why: 1 } },
    { code: -32_000, message: '{"why":1}' },
  ],
  [{ code: -32_000 }, { code: -32_000, message: '{"code":-32000}' }],
  ['boom', { code: -32_603, message: 'boom' }],
  [7, { code: -32_603, message: '7' }],
  [null, undefined],
]

test.each(written)('%j', (error, read) => {
  expect(rpcErrorOf(error)).toEqual(read)
})
