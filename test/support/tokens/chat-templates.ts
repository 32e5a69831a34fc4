/** Chat templates of the kinds that models have, cut down to what they do to a conversation. */

const generationPrompt = `{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`

const calls = `{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}{{ call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}`

/** ChatML: every message as it is, with the tools before them. */
export const chatMl = `{%- if tools %}{{- '<|im_start|>system\\n' }}{{ tools | tojson }}{{- '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
${calls}
{{- '<|im_end|>\\n' }}
{%- endfor %}
${generationPrompt}`

/** Like Qwen 3: reasoning is left out once a user has spoken after it, and results of calls are what a user says. */
export const stripping = `{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.previtem is not defined or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- if loop.nextitem is not defined or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' and loop.index0 > ns.last and (loop.last or message.reasoning_content) %}
{{- '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' }}
{%- endif %}
{{- message.content }}
${calls}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
${generationPrompt}
{%- if add_generation_prompt and enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}`

/** The prompt opens the reasoning, as that of DeepSeek R1 and QwQ does. */
export const opening = chatMl
  .replace("'<|im_start|>assistant\\n' }}{%- endif", "'<|im_start|>assistant\\n<think>\\n' }}{%- endif")
  .replace('message.content }}', "message.content.split('</think>')[-1] }}")

/** Like Llama 3: headers, one call in a reply at most, whose arguments are an object. */
export const llama = `{%- for message in messages %}
{{- '<|start_header_id|>' + ('ipython' if message.role == 'tool' else message.role) + '<|end_header_id|>\\n\\n' }}
{%- if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{- raise_exception('This model only supports single tool-calls at once!') }}{%- endif %}
{%- set call = message.tool_calls[0].function %}
{{- '{"name": "' + call.name + '", "parameters": ' }}{{ call.arguments | tojson }}{{- '}' }}
{%- else %}{{- message.content }}{%- endif %}
{{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}`

/** Like gpt-oss: the last reply ends with another token than earlier ones. */
export const otherEnd = chatMl.replace(
  "{{- '<|im_end|>\\n' }}\n{%- endfor %}",
  "{%- if message.role == 'assistant' and loop.last %}{{- '<|return|>' }}{%- else %}{{- '<|im_end|>' }}{%- endif %}\n{%- endfor %}",
)

/** Says how many messages there are, before them. */
export const counting = `{{- '<|im_start|>' + (messages | length | string) + ' messages\\n' }}${chatMl}`

/** The text of a user's message depends on how many messages come before it. */
export const numbering = chatMl.replace(
  "'<|im_start|>' + message.role",
  "'<|im_start|>' + (loop.index | string) + message.role",
)

/** No special tokens: replies end with a line. */
export const plain = `{%- for message in messages %}{{- message.role + ': ' + message.content + '\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- endif %}`

/** Nothing follows the text of a reply. */
export const endless = chatMl.replace(
  "{{- '<|im_end|>\\n' }}\n{%- endfor %}",
  "{%- if message.role != 'assistant' %}{{- '<|im_end|>\\n' }}{%- endif %}\n{%- endfor %}",
)
