import { createWriteStream } from 'node:fs'
import { mkdtempDisposable, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { pathToFileURL } from 'node:url'
import v8 from 'node:v8'
import { runInNewContext } from 'node:vm'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { jsonl } from './jsonl.ts'
import type { TaskRow, TaskSource } from '../define/define-environment.ts'

function temporaryFolder() {
  return mkdtempDisposable(join(tmpdir(), 'millrace-jsonl-'))
}

v8.setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

/** What is really held: garbage that was not collected yet would hide a leak, or look like one. */
function heldBytes(): number {
  collectGarbage()
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

async function rowsOf(source: TaskSource): Promise<TaskRow[]> {
  return await Array.fromAsync(source.rows())
}

describe('jsonl', () => {
  test('a row that is not UTF-8 is rejected; a replacement character in the file is text', async () => {
    await using folder = await temporaryFolder()
    const path = join(folder.path, 'questions.jsonl')
    const filler = `{"a":"${'é'.repeat(100_001)}"}\n`
    await writeFile(path, `{"a":"\u{fffd}"}\n${filler}`)
    expect(await rowsOf(jsonl(path))).toMatchObject([{ value: { a: '\u{fffd}' } }, { value: {} }])
    const problem = 'it is not UTF-8; save the file in this encoding'
    await writeFile(
      path,
      Buffer.concat([Buffer.from(`${filler}{"a":"caf`), Buffer.from([0xe9]), Buffer.from('"}\n{"a":1}')]),
    )
    expect(await rowsOf(jsonl(path))).toMatchObject([
      { value: {} },
      { at: 'questions.jsonl line 2', problem },
      { at: 'questions.jsonl line 3', value: { a: 1 } },
    ])
  })

  test('reads lines and gives the place of each', async () => {
    await using folder = await temporaryFolder()
    const path = join(folder.path, 'questions.jsonl')
    await writeFile(path, '\u{feff}{"a":1}\r\n\r\n  \n{"a":"é"}\n[3]')
    expect(await rowsOf(jsonl(path))).toEqual([
      { at: 'questions.jsonl line 1', value: { a: 1 } },
      { at: 'questions.jsonl line 4', value: { a: 'é' } },
      { at: 'questions.jsonl line 5', value: [3] },
    ])
  })

  test('continues after a line that is not JSON', async () => {
    await using folder = await temporaryFolder()
    const path = join(folder.path, 'questions.jsonl')
    await writeFile(path, '1\n{"a" 2}\n3\n')
    expect(await rowsOf(jsonl(path))).toEqual([
      { at: 'questions.jsonl line 1', value: 1 },
      {
        at: 'questions.jsonl line 2',
        problem: expect.stringMatching(/^not valid JSON: .* at column 6\. Correct the line\.$/),
      },
      { at: 'questions.jsonl line 3', value: 3 },
    ])
  })

  test('accepts a URL and decompresses', async () => {
    await using folder = await temporaryFolder()
    const path = join(folder.path, 'many.jsonl.gz')
    const lines = Array.from({ length: 20_000 }, (_, number) => JSON.stringify({ number }))
    await writeFile(path, gzipSync(lines.join('\n')))
    const rows = await rowsOf(jsonl(pathToFileURL(path)))
    expect(rows).toHaveLength(20_000)
    expect(rows.at(-1)).toEqual({ at: 'many.jsonl.gz line 20000', value: { number: 19_999 } })
    expect(await rowsOf(jsonl(pathToFileURL(path).href))).toHaveLength(20_000)
  })

  test('decompresses gzip content and reads other content, whatever the file name', async () => {
    await using folder = await temporaryFolder()
    const [packed, plain, empty] = ['a.jsonl', 'b.jsonl.gz', 'c.jsonl'].map((name) => join(folder.path, name)) as [
      string,
      string,
      string,
    ]
    await Promise.all([writeFile(packed, gzipSync('1\n2\n')), writeFile(plain, '1\n2\n'), writeFile(empty, '')])
    expect(await rowsOf(jsonl(packed))).toMatchObject([{ value: 1 }, { at: 'a.jsonl line 2', value: 2 }])
    expect(await rowsOf(jsonl(plain))).toMatchObject([{ value: 1 }, { value: 2 }])
    expect(await rowsOf(jsonl(empty))).toEqual([])
  })

  test.each(['[\n  {"a":1},\n  {"a":2}\n]', '\n[{"a":1},\n{"a":2}]', '{\n  "a": 1\n}\n'])(
    'explains a file whose value spans several lines: %j',
    async (text) => {
      await using folder = await temporaryFolder()
      const path = join(folder.path, 'questions.jsonl')
      await writeFile(path, text)
      await expect(rowsOf(jsonl(path))).rejects.toMatchObject({
        code: 'tasks_failed',
        rawMessage: expect.stringMatching(
          /^questions\.jsonl is JSON over several lines, .* jq -c '\.\[\]' makes lines/,
        ),
      })
    },
  )

  test('a damaged archive fails', async () => {
    await using folder = await temporaryFolder()
    const path = join(folder.path, 'cut.jsonl.gz')
    await writeFile(path, gzipSync('1\n'.repeat(100_000)).subarray(0, -20))
    await expect(rowsOf(jsonl(path))).rejects.toThrow(/unexpected end of file/)
  })

  test('names a missing file and the nearest file name', async () => {
    await using folder = await temporaryFolder()
    await writeFile(join(folder.path, 'questions.jsonl'), '')
    const path = join(folder.path, 'question.jsonl')
    await expect(rowsOf(jsonl(path))).rejects.toMatchObject({
      code: 'file_not_found',
      rawMessage: `there is no file ${path}; did you mean questions.jsonl?`,
    })
    await expect(rowsOf(jsonl(join(folder.path, 'no/where.jsonl')))).rejects.toThrow(
      /nor a folder .*relative paths start/,
    )
    await expect(rowsOf(jsonl(folder.path))).rejects.toThrow(/is a folder, not a file/)
  })

  test('a million rows: the first at once, the rest in constant memory', async () => {
    await using folder = await temporaryFolder()
    const path = join(folder.path, 'million.jsonl')
    const count = 1_000_000
    await pipeline(
      Readable.from(
        (function* () {
          for (let start = 0; start < count; start += 10_000) {
            let text = ''
            for (let row = start; row < start + 10_000; row += 1)
              text += `{"question":"what is ${row} + 1?","answer":${row + 1}}\n`
            yield text
          }
        })(),
      ),
      createWriteStream(path),
    )
    const source = jsonl(path)
    expect(source.total?.()).toBeUndefined()
    for await (const row of source.rows()) {
      expect(row).toEqual({ at: 'million.jsonl line 1', value: { question: 'what is 0 + 1?', answer: 1 } })
      break
    }
    // One chunk of 64 KB told it how long the lines are; the file has about 48 MB.
    const estimate = source.total?.()
    expect(estimate?.exact).toBe(false)
    expect(estimate?.count).toBeGreaterThan(count * 0.8)
    expect(estimate?.count).toBeLessThan(count * 1.3)

    const before = heldBytes()
    let rows = 0
    let peak = 0
    for await (const _row of source.rows()) {
      rows += 1
      if (rows % 200_000 === 0) peak = Math.max(peak, heldBytes())
    }
    expect(rows).toBe(count)
    expect(peak - before).toBeLessThan(20_000_000)
    expect(source.total?.()).toEqual({ count, exact: true })
  })
})
