import { mkdir, mkdtempDisposable, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { contentOf, defaultOutputChars as maxOutputChars, maxImageChars } from './tool-box.ts'
import { noteChars, ToolOutputs } from './tool-output.ts'

describe('contentOf', () => {
  test.each([
    ['text', 'text'],
    [undefined, ''],
    [null, 'null'],
    [7, '7'],
    [{ a: [1] }, '{"a":[1]}'],
    [[], '[]'],
    [[{ type: 'text' }], '[{"type":"text"}]'],
  ])('shows %o as %s', (output, content) => {
    expect(contentOf(output)).toBe(content)
  })

  test('leaves content parts as they are', () => {
    const parts = [
      { type: 'text', text: 'see' },
      { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
    ]
    expect(contentOf(parts)).toEqual(parts)
  })

  test('truncates a long output and gives its length', () => {
    const content = contentOf('x'.repeat(maxOutputChars + 10)) as string
    expect(content.slice(maxOutputChars)).toBe(`\n[10 of ${maxOutputChars + 10} characters were cut off]`)
    expect(contentOf('x'.repeat(maxOutputChars))).toHaveLength(maxOutputChars)
  })

  test('does not split a character', () => {
    const content = contentOf(`${'x'.repeat(maxOutputChars - 1)}😀`) as string
    expect(content.isWellFormed()).toBe(true)
    expect(content).toContain('[2 of ')
  })

  test('the parts of one output share one limit', () => {
    const text = 'x'.repeat(maxOutputChars - 1)
    const parts = contentOf([
      { type: 'text', text },
      { type: 'text', text: 'abc' },
    ])
    expect(parts).toEqual([
      { type: 'text', text },
      { type: 'text', text: 'a\n[2 of 3 characters were cut off]' },
    ])
  })

  test('leaves out an image that no model server accepts', () => {
    const [part] = contentOf([{ type: 'image_url', image_url: { url: 'x'.repeat(maxImageChars + 1) } }])
    expect(part).toEqual({ type: 'text', text: expect.stringContaining('too large') })
  })

  test('refuses what is not JSON', () => {
    expect(() => contentOf(1n)).toThrow(/BigInt/)
    const cycle: { self?: unknown } = {}
    cycle.self = cycle
    expect(() => contentOf(cycle)).toThrow(/circular/)
  })
})

async function outputsOf(maxChars: number) {
  const temporary = await mkdtempDisposable(join(tmpdir(), 'millrace-outputs-'))
  const folder = join(temporary.path, '0-0')
  return {
    folder,
    outputs: new ToolOutputs(folder, maxChars),
    files: () => readdir(folder),
    [Symbol.asyncDispose]: () => temporary.remove(),
  }
}

/** Every character says where it stands, so that a wrong stretch shows. */
const numbered = Array.from({ length: 5_000 }, (_, index) => `${index}`.padStart(6, ' ')).join('')

const nameIn = (text: string): string => /"output": "([^"]+)"/.exec(text)?.[1] ?? ''

describe('ToolOutputs', () => {
  test('an output within the limit is unchanged', async () => {
    await using kept = await outputsOf(1_000)
    const parts = [{ type: 'text' as const, text: 'x'.repeat(500) }]
    expect(await kept.outputs.shorten('x'.repeat(1_000))).toBe('x'.repeat(1_000))
    expect(await kept.outputs.shorten(parts)).toBe(parts)
  })

  test('a long output is shown from both ends and can be read back in parts', async () => {
    await using kept = await outputsOf(2_000)
    const shown = (await kept.outputs.shorten(numbered)) as string
    expect(shown.length).toBeLessThanOrEqual(2_000)
    expect(shown.startsWith(numbered.slice(0, 1_000))).toBe(true)
    expect(shown.endsWith(numbered.slice(-300))).toBe(true)
    let text = ''
    for (;;) {
      const stretch = await kept.outputs.read(nameIn(shown), text.length, 1_777)
      const end = stretch.lastIndexOf('\n[')
      text += stretch.slice(0, end)
      if (stretch.endsWith('[this is the end]')) break
      expect(stretch).toContain(`read on from offset ${text.length}]`)
    }
    expect(text).toBe(numbered)
  })

  test('a shortened output is not shortened again, and equal outputs have one name', async () => {
    await using kept = await outputsOf(2_000)
    const shown = (await kept.outputs.shorten(numbered)) as string
    expect(await kept.outputs.shorten(shown)).toBe(shown)
    expect(await kept.outputs.shorten(numbered)).toBe(shown)
    expect(await kept.files()).toEqual([`${nameIn(shown)}.txt`])
  })

  test('images stay in place, and no character is split', async () => {
    await using kept = await outputsOf(noteChars + 101)
    const image = { type: 'image_url' as const, image_url: { url: 'data:image/png;base64,AAAA' } }
    const shown = await kept.outputs.shorten([{ type: 'text', text: `a${'😀'.repeat(500)}` }, image])
    const [text, second] = shown as [{ text: string }, unknown]
    expect(second).toBe(image)
    expect(text.text.isWellFormed()).toBe(true)
  })

  test('an unknown name is an error, also one with a path', async () => {
    await using kept = await outputsOf(2_000)
    await expect(kept.outputs.read('o-000000000000', 0, 10)).rejects.toThrow('there is no output "o-000000000000"')
    await expect(kept.outputs.read('../../etc/passwd', 0, 10)).rejects.toThrow('there is no output')
  })
})

test('a part ends between characters, and gives its end', async () => {
  await using kept = await outputsOf(1_000)
  const text = `a${'😀'.repeat(1_000)}`
  const shown = (await kept.outputs.shorten(text)) as string
  expect(shown.isWellFormed()).toBe(true)
  const stretch = await kept.outputs.read(nameIn(shown), 0, 10)
  expect(stretch).toBe(`a${'😀'.repeat(4)}\n[${text.length - 9} more characters: read on from offset 9]`)
})

test('an output that cannot be stored is an error', async () => {
  await using kept = await outputsOf(1_000)
  const shown = (await kept.outputs.shorten(numbered)) as string
  const file = join(kept.folder, `${nameIn(shown)}.txt`)
  await rm(file)
  await mkdir(file)
  await expect(kept.outputs.shorten(numbered)).rejects.toMatchObject({ code: 'EISDIR' })
  await rm(kept.folder, { recursive: true })
  await writeFile(kept.folder, 'a file, not a folder')
  await expect(kept.outputs.shorten(numbered)).rejects.toMatchObject({ code: 'EEXIST' })
})

test('a replay reads the stored outputs of the run, and stores none', async () => {
  await using kept = await outputsOf(1_000)
  const replayed = new ToolOutputs(kept.folder, 1_000, { isReadOnly: true })
  const shown = (await replayed.shorten(numbered)) as string
  await expect(kept.files()).rejects.toMatchObject({ code: 'ENOENT' })
  expect(await kept.outputs.shorten(numbered)).toBe(shown)
  expect(await replayed.read(nameIn(shown), 0, 6)).toContain('     0')
  const other = (await replayed.shorten(numbered.slice(6))) as string
  expect(nameIn(other)).not.toBe(nameIn(shown))
  expect(await kept.files()).toEqual([`${nameIn(shown)}.txt`])
})
