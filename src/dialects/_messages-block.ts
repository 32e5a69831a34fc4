import type { ContentPart, JsonObject } from '../schema/index.ts'
import { imagePart } from './_content.ts'
import { anyText, requiredText, typedObject, type TypedObject } from './_request-fields.ts'
import type { Untranslatable } from './_untranslatable.ts'

const caching = ['cache_control'] as const

/** Reads one block of what the model is given. Marks for caching are left out: prefixes are cached anyway. */
export function readBlock(block: TypedObject, at: string, untranslatable: Untranslatable): ContentPart {
  untranslatable.addLabels(block, caching)
  if (block.type === 'text') return { type: 'text', text: anyText(block, 'text', `${at}.`) }
  // Tools that are declared late are declared all the same, so their names are enough to tell that they can be called.
  if (block.type === 'tool_reference' && untranslatable.isTranslated) {
    return { type: 'text', text: `Tool loaded: ${requiredText(block, 'tool_name', `${at}.`)}` }
  }
  const image = block.type === 'image' ? readImage(block, at) : undefined
  if (image) return image
  untranslatable.add(`${at}.type ${block.type}`)
  return { type: 'other', api: 'messages', value: withoutCaching(block) }
}

/** The block without its mark for caching. Clients move these marks from turn to turn, and a repeated block must stay equal. */
export function withoutCaching({ cache_control: _left, ...block }: TypedObject): JsonObject {
  return block
}

/** Reads an image. Undefined for a source that only Anthropic's server can open. */
function readImage(block: TypedObject, at: string): ContentPart | undefined {
  const source = typedObject(block['source'], `${at}.source`)
  const place = `${at}.source.`
  if (source.type === 'url') return imagePart(requiredText(source, 'url', place))
  if (source.type !== 'base64') return undefined
  const mediaType = requiredText(source, 'media_type', place)
  return imagePart(`data:${mediaType};base64,${requiredText(source, 'data', place)}`)
}
