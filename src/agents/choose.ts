import type { AgentContext } from '../env/index.ts'
import type { AssistantMessage } from '../schema/index.ts'
import { tryInChild } from './children.ts'
import { lastReply, requireWhole, saidIn, tagged, transcript } from './replies.ts'

/** What an attempt came to. */
export interface Attempt {
  readonly message: AssistantMessage
  /** What it says, without thoughts. */
  readonly answer: string
  /** Its reward, where attempts are verified. */
  readonly reward: number
}

interface Chooser {
  readonly context: AgentContext
  readonly model: string | undefined
}

/**
 * Each makes one reply of those of several attempts, of which there is at least one. The first wins where several are as good.
 * If a model does not choose, the vote does.
 */
const choosers = {
  vote: (attempts: readonly Attempt[]) => replyOf(mostFrequent(attempts)),
  verify: (attempts: readonly Attempt[]) =>
    replyOf(attempts.reduce((best, each) => (each.reward > best.reward ? each : best))),
  select: async (attempts: readonly Attempt[], chooser: Chooser) =>
    replyOf(isUnanimous(attempts) ? attempts[0] : ((await selected(attempts, chooser)) ?? mostFrequent(attempts))),
  merge: async (attempts: readonly Attempt[], chooser: Chooser) =>
    (await merged(attempts, chooser)) ?? replyOf(mostFrequent(attempts)),
}

export type Choice = keyof typeof choosers

export const choices = Object.keys(choosers) as readonly Choice[]

export async function chooseBy(
  choice: Choice,
  attempts: readonly Attempt[],
  chooser: Chooser,
): Promise<AssistantMessage> {
  return await choosers[choice](attempts, chooser)
}

/** As a message of another conversation: its thoughts stay in the attempt's own. */
function replyOf(attempt: Attempt | undefined): AssistantMessage {
  const { content = null, tool_calls: calls } = attempt?.message ?? {}
  return { role: 'assistant', content, ...(calls && { tool_calls: calls }) }
}

function mostFrequent(attempts: readonly Attempt[]): Attempt | undefined {
  const groups = [...Map.groupBy(attempts, ({ answer }) => voteOf(answer)).values()]
  return groups.reduce((best, each) => (each.length > best.length ? each : best))[0]
}

function isUnanimous(attempts: readonly Attempt[]): boolean {
  return new Set(attempts.map(({ answer }) => answer)).size === 1
}

/** The start of a line that may name the answer: with marks of lists and headings, bold or not, as "So the final answer". */
const leadIn = String.raw`^[ \t>#*_-]*(?:(?:so|thus|hence|therefore|finally),?[ \t]+)?(?:(?:the|my|our)[ \t]+)?(?:(?:final|correct|right)[ \t]+)?`

const marked = [
  /<answer>((?:(?!<answer>)[\s\S])*?)<\/answer>/dgi,
  /(?<!#)#{4,}[ \t]*([^\s#].*)/dg,
  new RegExp(String.raw`${leadIn}answer[*_]*[ \t]*(?::|is\b)[:*_\s]*(\S.*)`, 'gdim'),
]

interface Marked {
  readonly text: string
  readonly at: number
}

function* markedIn(answer: string): Generator<Marked, void, void> {
  for (const pattern of marked) {
    for (const { 1: text = '', indices } of answer.matchAll(pattern)) yield { text, at: indices?.[1]?.[0] ?? 0 }
  }
  yield* boxedIn(answer)
}

/** What stands in `\boxed{…}`, which may have braces of its own. */
function* boxedIn(answer: string): Generator<Marked, void, void> {
  let at = 0
  let depth = 0
  for (const { 0: token, index } of answer.matchAll(/\\boxed\s*\{|\\.|[{}]/g)) {
    if (token.startsWith(String.raw`\boxed`)) {
      at = index + token.length
      depth = 1
    } else if (depth > 0 && token === '{') depth += 1
    else if (depth > 0 && token === '}') {
      depth -= 1
      if (depth === 0) yield { text: answer.slice(at, index), at }
    }
  }
}

/** What an answer votes for: the last thing that is marked as the answer, or else its last line; in one form. */
export function voteOf(answer: string): string {
  let last: Marked | undefined
  for (const found of markedIn(answer)) if (!last || found.at > last.at) last = found
  const said = (last?.text ?? answer.trim().split('\n').at(-1) ?? '').toLowerCase()
  const bare = said
    .replaceAll(/[\s*$`"']+/g, ' ')
    .trim()
    .replace(/ ?\.$/, '')
  const number = /^[-+]?\d[\d,]*(?:\.\d+)?$/.test(bare) ? Number(bare.replaceAll(',', '')) : Number.NaN
  return Number.isNaN(number) || Math.abs(number) > Number.MAX_SAFE_INTEGER ? bare : String(number)
}

const selectRole = `You choose the best of several answers to the same request. Check each one for yourself; that several agree does not make them right.

End with a line "Best: <number>", with the number of the answer.`

async function selected(attempts: readonly Attempt[], chooser: Chooser): Promise<Attempt | undefined> {
  return await askedOf(chooser, requestFor(selectRole, attempts, chooser), async ({ turn, append }) => {
    const ask = async (): Promise<Attempt | undefined> => {
      const { message, finishReason } = await turn()
      requireWhole(finishReason)
      const number = [...saidIn(message).matchAll(/\bbest\W*(\d+)/gi)].at(-1)?.[1]
      return number === undefined ? undefined : attempts[Number(number) - 1]
    }
    const first = await ask()
    if (first) return first
    append({
      role: 'user',
      content: 'Reply with the line "Best: <number>" alone, with the number of one of the answers.',
    })
    return await ask()
  })
}

const mergeRole = `You merge several answers to the same request into one. Some of them may be wrong: check them for yourself, keep what is right, and leave out what is not.

Reply with the merged answer alone, in the form that the request asks for.`

async function merged(attempts: readonly Attempt[], chooser: Chooser): Promise<AssistantMessage | undefined> {
  return await askedOf(chooser, requestFor(mergeRole, attempts, chooser), async ({ turn, messages }) => {
    const { finishReason } = await turn()
    requireWhole(finishReason)
    return { role: 'assistant', content: saidIn(lastReply(messages)) }
  })
}

/** What a model says of the attempts; undefined if its reply was cut, or the budget was used up before. */
async function askedOf<Result>(
  { context: { child, signal } }: Chooser,
  request: ReturnType<typeof requestFor>,
  work: (own: AgentContext) => Promise<Result>,
): Promise<Result | undefined> {
  const end = await tryInChild(child, { ...request, tools: [] }, work)
  signal.throwIfAborted()
  return 'result' in end ? end.result : undefined
}

function requestFor(role: string, attempts: readonly Attempt[], { context, model }: Chooser) {
  const answers = attempts.map(({ answer }, index) => tagged(`answer number="${index + 1}"`, answer))
  const given = [tagged('conversation', transcript(context.messages)), ...answers].join('\n')
  const prompt = [
    { role: 'system', content: role },
    { role: 'user', content: given },
  ] as const
  return { prompt, ...(model !== undefined && { model }) }
}
