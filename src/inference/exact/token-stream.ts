import { existsSync } from 'node:fs'
import type { Backend, TokenAccess, TokenizedConversation } from '../../apis/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { sameNumbers } from '../../kit/index.ts'
import {
  checkTemplate,
  type ModelTokenizer,
  probeConversations,
  probeTexts,
  type TemplateReport,
  type Tokenizer,
} from '../../tokenizer/index.ts'
import type { ModelConfig } from '../config.ts'
import { PromptEncoder } from './prompt-encoder.ts'

/** What is needed to write the prompts of a model as token ids, and to read its replies. */
export interface TokenStream {
  readonly folder: string
  readonly tokenizer: Tokenizer
  readonly encoder: PromptEncoder
  readonly template: TemplateReport
  /** The token with which the template ends a reply. */
  readonly closeId: number
  /** Tokens that may end a reply: they are not part of its text. */
  readonly endIds: ReadonlySet<number>
  readonly contextLength: number | undefined
  /** For each backend that answered: the path that takes ids, and what was compared with ours. */
  readonly backends: readonly CheckedBackend[]
  /** Whether a backend did not answer, so that nobody knows its tokenizer. */
  readonly isPartial: boolean
}

export interface CheckedBackend {
  readonly name: string
  readonly path: string
  readonly isTokenizerCompared: boolean
  readonly isTemplateCompared: boolean
}

type OpenBackend = Pick<Backend, 'name'> & { readonly tokenAccess: TokenAccess }

interface OpenOptions {
  readonly load: (folder: string) => Promise<ModelTokenizer>
  readonly signal: AbortSignal
}

/**
 * Opens the token stream of a model: loads its tokenizer, checks its chat template, and compares both with those of each
 * backend. One backend must answer, and none may be unfit. Rejects with `config_invalid` and the next step if it is not possible.
 */
export async function openTokenStream(
  { name, tokenizer: given, simulator }: ModelConfig,
  backends: readonly Backend[],
  { load, signal }: OpenOptions,
): Promise<TokenStream> {
  const able = backends.flatMap(({ name: backend, tokenAccess }) =>
    tokenAccess ? [{ name: backend, tokenAccess }] : [],
  )
  if (able.length < backends.length || able.length === 0) {
    const hint = simulator
      ? '. The simulator takes them with tokens: lossy (--sim.tokens=lossy, or in a models file)'
      : ''
    throw invalid(name, `one of its backends takes no prompts of token ids${hint}`)
  }
  const found = await Promise.allSettled(
    able.map(async (backend) => ({ backend, facts: await backend.tokenAccess.facts() })),
  )
  const answered = found.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
  const failures = found.flatMap((each) =>
    each.status === 'rejected' ? [MillraceError.from(each.reason, 'internal')] : [],
  )
  const failure = failures.find(({ retryable }) => !retryable) ?? (answered.length === 0 ? failures[0] : undefined)
  if (failure) throw failure
  const folder =
    given ??
    folderOf(
      name,
      answered.map(({ facts }) => facts.tokenizerFolder),
    )
  const { tokenizer, template: source, endIds } = await load(folder)
  const template = checkTemplate(source)
  const [closeId] = tokenizer.encode(template.bridge.close)
  if (closeId === undefined || !tokenizer.isSpecial(closeId)) {
    throw invalid(
      name,
      `its chat template ends replies with ${JSON.stringify(template.bridge.close)}, which does not begin with a special token`,
    )
  }
  const probe = probeText(template)
  requireSameInParts(name, tokenizer, probe)
  const own = { model: name, folder, tokenizer, template, signal }
  const compared = await Promise.all(
    answered.map(async ({ backend, facts }) => ({
      name: backend.name,
      path: facts.path,
      isTokenizerCompared: await isSame(own, backend, { of: 'tokenizer', text: probe }),
      // The engine may be on a machine where it is another day.
      isTemplateCompared: !source.source.includes('strftime_now') && (await isSameTemplate(own, backend)),
    })),
  )
  const lengths = answered.flatMap(({ facts }) => (facts.contextLength === undefined ? [] : [facts.contextLength]))
  return {
    folder,
    tokenizer,
    encoder: new PromptEncoder({ folder, tokenizer }),
    template,
    closeId,
    endIds: new Set([closeId, ...endIds]),
    contextLength: lengths.length > 0 ? Math.min(...lengths) : undefined,
    backends: compared,
    isPartial: answered.length < able.length,
  }
}

function folderOf(model: string, folders: readonly (string | undefined)[]): string {
  const named = folders.find((folder) => folder !== undefined)
  if (named !== undefined && existsSync(named)) return named
  const where =
    named === undefined
      ? 'its backend names none'
      : `its backend names the folder ${named}, which is not on this machine`
  throw invalid(
    model,
    `the folder of its tokenizer is not known: ${where}. Name one with --tokenizer <folder> (tokenizer)`,
  )
}

/** A conversation as the template writes it, with texts that tell tokenizers apart. */
function probeText({ bridge }: TemplateReport): string {
  const question = { role: 'user', content: probeTexts.join('\n') } as const
  const answer = { role: 'assistant', content: '' } as const
  const { text = '' } = bridge.after(answer, [question], { tools: [] })
  return bridge.whole([question], { tools: [] }) + text
}

/** Special tokens divide a text, so its parts have the ids that they have within the whole. */
function requireSameInParts(model: string, tokenizer: Tokenizer, text: string): void {
  const parts = Int32Array.from(tokenizer.encodeParts(text).flatMap((ids) => Array.from(ids)))
  if (sameNumbers(parts, tokenizer.encode(text))) return
  throw invalid(model, 'its tokenizer does not divide texts at special tokens')
}

interface OwnTokens {
  readonly model: string
  readonly folder: string
  readonly tokenizer: Tokenizer
  readonly template: TemplateReport
  readonly signal: AbortSignal
}

interface Probe {
  readonly of: 'tokenizer' | 'chat template'
  readonly text: string
  /** What the backend is asked for, if it is not the text itself. */
  readonly conversation?: TokenizedConversation
}

/** False if the backend cannot be asked. Rejects if it makes other tokens. */
async function isSame(
  { model, folder, tokenizer, signal }: OwnTokens,
  { name, tokenAccess }: OpenBackend,
  { of, text, conversation }: Probe,
): Promise<boolean> {
  const theirs = await tokenAccess.tokenize(conversation ?? text, signal)
  if (!theirs) return false
  const ours = tokenizer.encode(text)
  if (sameNumbers(ours, theirs)) return true
  const at = ours.findIndex((id, index) => id !== theirs[index])
  const place = at === -1 ? ours.length : at
  throw invalid(
    model,
    `the ${of} in ${folder} is not that of ${name}: they differ from token ${place} of a probe on (${ours[place] ?? 'none'} and ${theirs[place] ?? 'none'}). Name the folder of the served model with --tokenizer (tokenizer)`,
  )
}

async function isSameTemplate(own: OwnTokens, backend: OpenBackend): Promise<boolean> {
  const compared = probeConversations.map(async (conversation) => {
    let text: string
    try {
      text = own.template.bridge.whole(conversation.messages, conversation)
    } catch {
      // Such a conversation is refused whenever it comes up.
      return false
    }
    return await isSame(own, backend, { of: 'chat template', text, conversation })
  })
  return (await Promise.all(compared)).includes(true)
}

function invalid(model: string, problem: string): MillraceError {
  return new MillraceError('config_invalid', `model ${model} cannot have exact tokens: ${problem}`)
}
