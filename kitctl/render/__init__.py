"""From a job to Kubernetes objects: values, templates, environment, overlay. Pure."""
