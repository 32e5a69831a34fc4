import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { MillraceError } from '../errors/index.ts'
import { isJsonList, isJsonObject, type Json, type JsonObject } from '../schema/index.ts'
import { ChatTemplate } from './chat-template.ts'
import { Tokenizer } from './tokenizer.ts'

/** What a model's folder says about its tokens, in the files that Hugging Face models have. */
export interface ModelTokenizer {
  readonly folder: string
  readonly tokenizer: Tokenizer
  readonly template: ChatTemplate
  /** The tokens that end a reply, as far as the folder names them: engines end at each of them. */
  readonly endIds: readonly number[]
}

export interface LoadTokenizerOptions {
  /** Variables of the template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, Json>>
}

/**
 * Reads `tokenizer.json`, `tokenizer_config.json`, `generation_config.json` and `chat_template.jinja` of a folder. The template may
 * also be part of the tokenizer's config.
 */
export async function loadTokenizer(
  folder: string,
  { variables = {} }: LoadTokenizerOptions = {},
): Promise<ModelTokenizer> {
  const [tokenizerFile, config, generation, templateFile] = await Promise.all([
    readText(folder, 'tokenizer.json'),
    readText(folder, 'tokenizer_config.json'),
    readText(folder, 'generation_config.json'),
    readText(folder, 'chat_template.jinja'),
  ])
  if (tokenizerFile === undefined) {
    throw missing(folder, 'tokenizer.json', 'Name the folder of a model in the format of Hugging Face')
  }
  const settings = config === undefined ? {} : parsed(config, folder, 'tokenizer_config.json')
  const source = templateFile ?? templateIn(settings['chat_template'])
  if (source === undefined) {
    throw missing(folder, 'chat_template.jinja', 'Save the chat template of the model there')
  }
  const tokenizer = new Tokenizer(parsed(tokenizerFile, folder, 'tokenizer.json'), settings)
  const { eos_token_id: more } = generation === undefined ? {} : parsed(generation, folder, 'generation_config.json')
  const endToken = tokenText(settings['eos_token'])
  const endIds = [endToken === undefined ? undefined : tokenizer.idOf(endToken), more].flat()
  return {
    folder,
    tokenizer,
    template: new ChatTemplate({ source, variables: { ...specialTokens(settings), ...variables } }),
    endIds: endIds.filter((id) => typeof id === 'number'),
  }
}

async function readText(folder: string, name: string): Promise<string | undefined> {
  try {
    return await readFile(join(folder, name), 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw new MillraceError('config_invalid', `${join(folder, name)} cannot be read: ${String(error)}`, {
      cause: error,
    })
  }
}

function missing(folder: string, file: string, step: string): MillraceError {
  return new MillraceError('config_invalid', `the tokenizer folder ${folder} has no ${file}. ${step}.`)
}

function parsed(text: string, folder: string, name: string): JsonObject {
  try {
    const value: unknown = JSON.parse(text)
    if (isJsonObject(value)) return value
  } catch (error) {
    throw new MillraceError('config_invalid', `${join(folder, name)} is not JSON: ${String(error)}`, { cause: error })
  }
  throw new MillraceError('config_invalid', `${join(folder, name)} is not a JSON object`)
}

/** A template, or a list of named ones: the one for tools knows everything that the others do. */
function templateIn(value: Json | undefined): string | undefined {
  if (typeof value === 'string') return value
  if (!isJsonList(value)) return undefined
  const named = new Map(
    value.flatMap((entry) => {
      if (!isJsonObject(entry)) return []
      const { name, template } = entry
      return typeof name === 'string' && typeof template === 'string' ? [[name, template] as const] : []
    }),
  )
  return named.get('tool_use') ?? named.get('default')
}

const tokenNames = ['bos_token', 'eos_token', 'pad_token', 'unk_token'] as const

function specialTokens(settings: JsonObject): Record<string, string> {
  const found: Record<string, string> = {}
  for (const name of tokenNames) {
    const text = tokenText(settings[name])
    if (text !== undefined) found[name] = text
  }
  return found
}

function tokenText(value: Json | undefined): string | undefined {
  if (typeof value === 'string') return value
  const content = isJsonObject(value) ? value['content'] : undefined
  return typeof content === 'string' ? content : undefined
}
