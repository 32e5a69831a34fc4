import { readdirSync, readlinkSync } from 'node:fs'
import { mkdtempDisposable, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { csv, type CsvOptions } from './csv.ts'
import type { TaskRow } from '../define/define-environment.ts'

async function read(content: string | Buffer, options?: CsvOptions, name = 'people.csv'): Promise<TaskRow[]> {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-csv-'))
  const path = join(folder.path, name)
  await writeFile(path, content)
  return await Array.fromAsync(csv(path, options).rows())
}

function openFiles(): string[] {
  return readdirSync('/proc/self/fd').flatMap((descriptor) => {
    try {
      return [readlinkSync(join('/proc/self/fd', descriptor))]
    } catch {
      // That of the listing itself.
      return []
    }
  })
}

describe('csv', () => {
  test('a row that is not UTF-8 is rejected', async () => {
    expect(await read(Buffer.from('word,answer\nplain,1\ncaf\u{e9},2\nlast,3\n', 'latin1'))).toEqual([
      { at: 'people.csv row 2', value: { word: 'plain', answer: '1' } },
      { at: 'people.csv row 3', problem: 'it is not UTF-8; save the file in this encoding' },
      { at: 'people.csv row 4', value: { word: 'last', answer: '3' } },
    ])
  })

  test('reads the names from the header', async () => {
    expect(await read('\u{feff}name,age\r\nAda,36\r\n\r\n"Grace ""Amazing""\nHopper",85')).toEqual([
      { at: 'people.csv row 2', value: { name: 'Ada', age: '36' } },
      { at: 'people.csv row 3', value: { name: 'Grace "Amazing"\nHopper', age: '85' } },
    ])
  })

  test('uses the given names and delimiter', async () => {
    expect(await read('Ada;36\n', { columns: ['name', 'age'], delimiter: ';' })).toEqual([
      { at: 'people.csv row 1', value: { name: 'Ada', age: '36' } },
    ])
  })

  test('refuses two columns with one name, but not two without a name', async () => {
    const twice = 'people.csv has two columns named "age"; rename one of them'
    await expect(read('name,age,age\nAda,36,37\n')).rejects.toThrow(twice)
    await expect(read('Ada,36,37\n', { columns: ['name', 'age', 'age'] })).rejects.toThrow(twice)
    expect(await read('name,,\nAda,,\n')).toMatchObject([{ value: { name: 'Ada' } }])
  })

  test('closes a file even if no row was read', { skip: process.platform !== 'linux' }, async () => {
    await expect(read('Ada,36\n', { columns: ['name', 'name'] }, 'unread.csv')).rejects.toThrow('two columns')
    await expect.poll(() => openFiles().filter((path) => path.includes('unread.csv'))).toEqual([])
  })

  test('closes a file that cannot be read', { skip: process.platform !== 'linux' }, async () => {
    // Its first bytes are nobody's memory.
    const path = `/proc/${process.pid}/mem`
    await expect(Array.fromAsync(csv(path).rows())).rejects.toMatchObject({ code: 'EIO' })
    expect(openFiles()).not.toContain(path)
  })

  test('continues after an invalid row', async () => {
    expect(await read('a,b\n1,2\n3\n4,5,6\n7,8\n')).toEqual([
      { at: 'people.csv row 2', value: { a: '1', b: '2' } },
      { at: 'people.csv row 3', problem: 'expected 2 columns, found 1' },
      { at: 'people.csv row 4', problem: 'expected 2 columns, found 3' },
      { at: 'people.csv row 5', value: { a: '7', b: '8' } },
    ])
  })

  test('keeps stray quotes unchanged', async () => {
    expect(await read('a,b\n5" pipe,"x"y\n7,8\n')).toEqual([
      { at: 'people.csv row 2', value: { a: '5" pipe', b: '"x"y' } },
      { at: 'people.csv row 3', value: { a: '7', b: '8' } },
    ])
  })

  test('an unclosed quote makes the last row invalid', async () => {
    expect(await read('a,b\n1,2\n"3,4\n5,6\n')).toEqual([
      { at: 'people.csv row 2', value: { a: '1', b: '2' } },
      { at: 'people.csv row 3', problem: 'a quote is opened and never closed; it begins: "3,4' },
    ])
  })

  test('rows merged by an unclosed quote are rejected', async () => {
    const rows = await read('a,b\n"one","1"\n"two,2\n"three","3"\n"four","4"\n')
    expect(rows).toEqual([
      { at: 'people.csv row 2', value: { a: 'one', b: '1' } },
      {
        at: 'people.csv row 3',
        problem: expect.stringMatching(/^an unclosed quote merged several rows into one; .* begins: "two,2$/),
      },
      { at: 'people.csv row 4', value: { a: 'four', b: '4' } },
    ])
  })

  test.each(['"', '"Hi"\n"Bye"', '"\n', '"a\n"b', 'a\n"'])(
    'quotes and line breaks within text are kept (%j)',
    async (text) => {
      const field = `"${text.replaceAll('"', '""')}"`
      for (const end of ['\n', '\r\n']) {
        expect(await read(`a,b${end}${field},${field}${end}`)).toMatchObject([{ value: { a: text, b: text } }])
      }
    },
  )

  test('a text that begins with a quote is read beside a similar one', async () => {
    const rows = await read('a,b\n"x\ny,z","""x\ny"\n')
    expect(rows).toMatchObject([{ value: { a: 'x\ny,z', b: '"x\ny' } }])
  })

  test('limits the size of a record', async () => {
    const rows = await read(Buffer.concat([Buffer.from('a,b\n1,2\n"3'), Buffer.alloc(17 * 1024 * 1024, 'x')]))
    expect(rows).toEqual([
      { at: 'people.csv row 2', value: { a: '1', b: '2' } },
      { at: 'people.csv row 3', problem: expect.stringMatching(/longer than 16 MB, probably because a quote/) },
    ])
  })

  test('decompresses, and reads several chunks', async () => {
    const lines = Array.from({ length: 20_000 }, (_, number) => `${number},é${number}`)
    const rows = await read(gzipSync(`a,b\n${lines.join('\n')}\n`), {}, 'people.csv.gz')
    expect(rows).toHaveLength(20_000)
    expect(rows.at(-1)).toEqual({ at: 'people.csv.gz row 20001', value: { a: '19999', b: 'é19999' } })
  })

  test('does not suggest a module instead of a missing file', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-csv-'))
    await writeFile(join(folder.path, 'people.ts'), '')
    const path = join(folder.path, 'people.csv')
    await expect(Array.fromAsync(csv(path).rows())).rejects.toThrow(`there is no file ${path}; the folder`)
    await writeFile(join(folder.path, 'peple.csv'), '')
    await expect(Array.fromAsync(csv(path).rows())).rejects.toThrow('did you mean peple.csv?')
  })

  test('an empty file has no rows; a missing one is an error', async () => {
    expect(await read('')).toEqual([])
    await expect(Array.fromAsync(csv('/nowhere/people.csv').rows())).rejects.toMatchObject({ code: 'file_not_found' })
  })
})
