import assert from 'node:assert/strict'
import { mkdir, readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { MillraceError } from '../../../src/errors/index.ts'
import type { Json, JsonObject, Message, ToolDefinition } from '../../../src/schema/index.ts'
import { ChatTemplate, probeTexts, Tokenizer } from '../../../src/tokenizer/index.ts'
import { check, type Counts, installPython, runCase, say, sumOf } from '../part.ts'
import { runProgram } from '../run-program.ts'

const here = import.meta.dirname
const originalsMs = 10 * 60_000
const texts = 4000

/** Our tokenizers and chat templates beside the originals in Python, on texts and conversations that are hard for them. */
export async function tokenizers(folder: string): Promise<Counts> {
  say('installing tokenizers and jinja2')
  const python = await installPython(folder, join(here, 'requirements.txt'))
  const made = join(folder, 'originals')
  await mkdir(made)
  await writeFile(join(made, 'probes.json'), JSON.stringify(probeTexts))
  const env = { ...process.env, RAYON_NUM_THREADS: '1', TOKENIZERS_PARALLELISM: 'false' }
  const originals = ['-B', join(here, 'originals.py'), made, String(texts)]
  check(await runProgram(python, originals, { env, timeoutMs: originalsMs }), 'the originals failed; see above')

  say('tokenizers, each made on the spot')
  const counts: Counts[] = []
  for (const entry of await readdir(made, { withFileTypes: true })) {
    if (entry.isDirectory()) counts.push(await runCase(entry.name, () => compareTokenizer(join(made, entry.name))))
  }
  say('chat templates')
  const renderings = (await readLines(join(made, 'templates.jsonl'))) as Rendering[]
  for (const [name, group] of Map.groupBy(renderings, (each) => each.name)) {
    counts.push(await runCase(name, async () => compareTemplate(group)))
  }
  return sumOf(counts)
}

interface Original {
  readonly text: string
  readonly ids: readonly number[]
  readonly decoded: string
}

/** Kinds that a model with exact tokens must refuse when it is opened, with the reason. */
const refused: Readonly<Record<string, RegExp>> = {
  'llama-2 metaspace': /^divides texts/,
  unigram: /Unknown Normalizer type: Nmt/,
  'word piece': /^other ids for a probe/,
}

/** Every text must have the same ids. Only a kind that is refused when it is opened may differ. */
async function compareTokenizer(folder: string): Promise<string> {
  const kind = folder.slice(folder.lastIndexOf('/') + 1)
  const originals = (await readLines(join(folder, 'texts.jsonl'))) as Original[]
  const expectedRefusal = refused[kind]
  const tokenizer = await opened(folder, originals)
  if (typeof tokenizer === 'string') {
    assert.match(tokenizer, expectedRefusal ?? /^(?!)/, `it is refused: ${tokenizer}`)
    return `refused when it is opened, as it should be: ${tokenizer}`
  }
  assert.equal(expectedRefusal, undefined, 'it is not refused')
  const others = originals.filter(({ text, ids }) => !isSame(tokenizer.encode(text), ids))
  const unknown = others.filter(({ text }) => !standsBesideStripping.test(text))
  assert.deepEqual(unknown.map(({ text }) => text).slice(0, 5), [], `${unknown.length} texts have other ids`)
  const inParts = originals.filter(({ text, ids }) => !isSame(idsInParts(tokenizer, text), ids))
  assert.equal(inParts.length, others.length, 'texts with other ids in parts than in one piece')
  const shown = originals.map(({ ids, decoded }) => [tokenizer.decode(ids), decoded] as const)
  const otherText = shown.filter(([ours, theirs]) => ours !== theirs)
  const plain = (text: string): string => text.replaceAll('\ufeff', '')
  const lost = otherText.filter(([ours, theirs]) => plain(ours) !== plain(theirs))
  assert.deepEqual(lost.slice(0, 5), [], `${lost.length} texts are decoded in another way`)
  const count = originals.reduce((sum, { ids }) => sum + ids.length, 0)
  const differences = [
    ...(others.length > 0
      ? [`${others.length} texts with U+FEFF or U+0085 beside <mask>, which strips white space`]
      : []),
    ...(otherText.length > 0 ? [`${otherText.length} texts decoded without their U+FEFF`] : []),
  ]
  return `${originals.length} texts, ${count} ids, ${differences.length === 0 ? 'all the same' : `the same but for ${differences.join(', ')}`}`
}

/** White space differs in these two characters. Only tokens that strip what is beside them are concerned. */
const standsBesideStripping = /[\u0085\ufeff][\s\u0085\ufeff]*<mask>/u

/** The tokenizer, or why a model with exact tokens refuses it: as `openTokenStream` does it against an engine. */
async function opened(folder: string, originals: readonly Original[]): Promise<Tokenizer | string> {
  let tokenizer: Tokenizer
  try {
    tokenizer = new Tokenizer(JSON.parse(await readFile(join(folder, 'tokenizer.json'), 'utf8')) as JsonObject, {})
  } catch (error) {
    return MillraceError.from(error, 'internal').rawMessage
  }
  const probe = `<s>user\n${probeTexts.join('\n')}</s>\n<s>`
  if (!isSame(idsInParts(tokenizer, probe), tokenizer.encode(probe))) {
    return 'divides texts at special tokens in another way'
  }
  const other = originals.slice(0, probeTexts.length).find(({ text, ids }) => !isSame(tokenizer.encode(text), ids))
  return other ? `other ids for a probe: ${JSON.stringify(other.text)}` : tokenizer
}

interface Rendering {
  readonly source: string
  readonly name: string
  readonly input: {
    readonly messages: readonly Message[]
    readonly tools: readonly ToolDefinition[]
    readonly addGenerationPrompt: boolean
    readonly variables: Readonly<Record<string, Json>>
  }
  /** If there is none, the original refused the conversation. */
  readonly text?: string
}

function compareTemplate(renderings: readonly Rendering[]): string {
  const source = renderings[0]?.source ?? ''
  const template = new ChatTemplate({ source, variables: { bos_token: '<s>', eos_token: '</s>' } })
  let refusals = 0
  for (const { input, text } of renderings) {
    const render = (): string => template.render(input)
    if (text === undefined) {
      assert.throws(render, { code: 'model_rejected' })
      refusals += 1
    } else assert.equal(render(), text)
  }
  assert.ok(refusals < renderings.length, 'it refuses all conversations')
  return `${renderings.length - refusals} conversations written in the same way, ${refusals} refused by both`
}

function idsInParts(tokenizer: Tokenizer, text: string): number[] {
  return tokenizer.encodeParts(text).flatMap((part) => Array.from(part))
}

function isSame(ours: ArrayLike<number>, theirs: ArrayLike<number>): boolean {
  return ours.length === theirs.length && Array.from(ours).every((id, index) => id === theirs[index])
}

async function readLines(file: string): Promise<unknown[]> {
  const lines = (await readFile(file, 'utf8')).trimEnd().split('\n')
  return lines.map((line) => JSON.parse(line) as unknown)
}
