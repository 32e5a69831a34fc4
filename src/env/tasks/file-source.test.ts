import { expect, test } from 'vitest'
import { Utf8Check } from './file-source.ts'

const problem = 'it is not UTF-8; save the file in this encoding'

async function* inChunks(bytes: Buffer, size: number): AsyncGenerator<Buffer, void, void> {
  for (let start = 0; start < bytes.length; start += size) yield bytes.subarray(start, start + size)
}

/** The lines of a file as rows, and whether each is one. */
async function checked(bytes: Buffer, size: number): Promise<(string | undefined)[]> {
  const check = new Utf8Check()
  const text = Buffer.concat(await Array.fromAsync(check.watch(inChunks(bytes, size)))).toString()
  return text.split('\n').map((value, index) => {
    const row = check.row({ at: `line ${index}`, value })
    return 'problem' in row ? row.problem : (row.value as string)
  })
}

test('only lines that are not UTF-8 are rejected, wherever the file is cut', async () => {
  const lines = ['ä€𝄞 \u{fffd}', 'caf\u{e9}', 'after it: \u{fffd}', '𝄞𝄞𝄞', '']
  const bytes = Buffer.concat(
    lines.flatMap((line, index) => [Buffer.from(line, index === 1 ? 'latin1' : 'utf8'), Buffer.from('\n')]),
  )
  for (let size = 1; size <= bytes.length; size += 1) {
    expect(await checked(bytes, size)).toEqual([...lines.with(1, problem), ''])
  }
})

test.each([
  ['a character that is cut off at the end', [0x61, 0x0a, 0xf0, 0x9f, 0x99], ['a', problem]],
  ['bytes that begin none', [0xff, 0xfe, 0x0a, 0x62], [problem, 'b']],
  ['a character that a line break cuts off', [0xe2, 0x82, 0x0a, 0x63], [problem, 'c']],
])('%s', async (_what, bytes, expected) => {
  for (let size = 1; size <= bytes.length; size += 1) expect(await checked(Buffer.from(bytes), size)).toEqual(expected)
})
