import { HttpBackend, Model, type TokenStream, resolveModelConfig } from '../../../inference/index.ts'
import type { ModelConfigInput } from '../../../inference/index.ts'
import type { Variables } from '../../../kit/index.ts'
import { Simulator } from '../../../simulator/index.ts'
import { printableLine, type Style, wrapText } from '../../terminal/text.ts'

interface Line {
  readonly name: string
  readonly shown: string
  /** What it means for exact tokens, if they are limited by it. */
  readonly advice?: string
}

/** Opens the token stream of a model, and shows what its chat template does. Rejects with the reason if tokens cannot be exact. */
export async function openModel(
  model: string | ModelConfigInput,
  models: Readonly<Record<string, ModelConfigInput>>,
  env: Variables,
): Promise<TokenStream> {
  const config = resolveModelConfig({ model, models, env })
  await using opened = new AsyncDisposableStack()
  const backends = config.simulator
    ? [opened.use(new Simulator(config.simulator))]
    : config.backends.map((backend) => opened.use(new HttpBackend(config, backend, env)))
  const client = opened.use(new Model({ ...config, tokens: 'exact' }, backends))
  return await client.tokenStream()
}

export function reportJson({ folder, contextLength, backends, template }: TokenStream): string {
  const { bridge, turns, reasoning, toolFormat, respellsArguments } = template
  const { close } = bridge
  const format = toolFormat?.name ?? null
  return JSON.stringify({
    exactTokens: true,
    folder,
    contextLength: contextLength ?? null,
    backends,
    template: { close, turns, reasoning, toolFormat: format, respellsArguments },
  })
}

export function reportLines(
  stream: TokenStream,
  { width, style }: { readonly width: number; readonly style: Style },
): string[] {
  const lines = linesOf(stream)
  const labelWidth = Math.max(...lines.map(({ name }) => name.length)) + 2
  const room = Math.max(20, width - labelWidth - 2)
  return lines.flatMap(({ name, shown, advice }) => {
    const mark = advice === undefined ? style.good('✓') : style.warn('!')
    const line = `${mark} ${style.bold(name.padEnd(labelWidth))}${printableLine(shown)}`
    const below = advice === undefined ? [] : wrapText(advice, room)
    return [line].concat(below.map((text) => `${' '.repeat(labelWidth + 2)}${style.warn(text)}`))
  })
}

function linesOf({ folder, contextLength, backends, template }: TokenStream): Line[] {
  const { bridge, turns, reasoning, toolFormat, respellsArguments } = template
  const { ofEarlierReplies: earlier, markers } = reasoning
  return [
    { name: 'tokenizer', shown: folder },
    ...backends.map(({ name, path, isTokenizerCompared, isTemplateCompared }) => ({
      name: 'backend',
      shown: `${name} takes ids ${path.startsWith('/') ? `at ${path}` : path}`,
      ...(!isTemplateCompared && { advice: notCompared(isTokenizerCompared) }),
    })),
    contextLength === undefined
      ? {
          name: 'context',
          shown: 'unknown',
          advice: 'The backend does not name its context length: set the limit of replies (--max-tokens).',
        }
      : { name: 'context', shown: `${contextLength} tokens` },
    { name: 'end of a reply', shown: JSON.stringify(bridge.close) },
    ...turns.map(({ kind, problem }): Line => {
      if (problem === undefined) return { name: 'next turn', shown: `${kind}: exact` }
      return { name: 'next turn', shown: `${kind}: not exact`, advice: `Such a turn begins a new row: ${problem}.` }
    }),
    {
      name: 'reasoning',
      shown: markers
        ? `between ${markers.open} and ${markers.close}, ${earlier} by the template`
        : 'none that the template knows',
      ...(markers &&
        earlier !== 'kept' && {
          advice:
            'Exact tokens keep the reasoning of earlier replies, because it was sampled. A server that renders conversations drops it.',
        }),
    },
    toolFormat
      ? { name: 'tool calls', shown: `in the format ${toolFormat.name}` }
      : {
          name: 'tool calls',
          shown: 'in no known format',
          advice:
            'Calls in replies stay text. Give the environment a text format (--tool-format), or leave exact tokens out.',
        },
    {
      name: 'arguments',
      shown: respellsArguments ? 'written anew by the template' : 'kept as they are',
      ...(respellsArguments && { advice: 'Only exact tokens keep the sampled spelling of earlier calls.' }),
    },
  ]
}

function notCompared(isTokenizerCompared: boolean): string {
  const why = isTokenizerCompared
    ? 'The chat template was not compared with that of the folder: the template writes the date, or /tokenize takes no conversations'
    : 'The tokenizer and the chat template were not compared with those of the folder: /tokenize does not answer'
  return `${why}. Check that they are the same.`
}
